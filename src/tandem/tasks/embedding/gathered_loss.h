// The loss over the rows of all logical shards: what a rank knows of the others between the two
// passes of a step.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tandem/tasks/embedding/loss.h"
#include "tandem/tasks/step_batches.h"

namespace tandem::tasks::embedding {

// Values of a row of the data.
struct RowShape {
  std::size_t columns = 0;
  std::size_t width = 0;
  std::size_t labels = 0;
};

class GatheredLoss {
 public:
  // Memory of a step with batches of up to `batch_size` rows and `statistics` numbers per row.
  static std::size_t bytes(const StepBatches& batches, const RowShape& shape,
                           std::size_t batch_size, std::size_t statistics);
  // `largest`: the most columns and labels of a row of any batch.
  void begin(const StepBatches& batches, const RowShape& largest);
  // The rows of a micro-batch and their loss, which are the same for all shards. Before
  // embeddings() and labels() of its batches.
  void describe(std::size_t micro, const RowShape& shape, const EmbeddingLoss& loss);
  // Embeddings [columns, rows, width] of a batch of this rank: the caller writes them.
  std::span<float> embeddings(BatchPosition position);
  // Labels [rows, labels] of a batch of this rank: the caller writes them.
  std::span<float> labels(BatchPosition position);
  // Computes all micro-batches. Collective.
  void compute(const kernels::Context& context, Gather gather);

  std::size_t shards() const { return batches_.shards; }
  // Over the rows of all shards.
  double loss(std::size_t micro) const { return losses_.at(micro); }
  // The loss's gradient by embeddings(place), in the same order.
  std::span<const float> gradient(BatchPosition position) const;

 private:
  std::size_t rows(std::size_t micro, std::size_t shard) const {
    return sizes_[micro * batches_.shards + shard];
  }
  std::size_t block_size() const {
    return capacity_ * (largest_.columns * largest_.width + largest_.labels);
  }
  std::size_t block(std::size_t micro, std::size_t shard) const {
    return (shard * batches_.micro_batches + micro) * block_size();
  }
  std::size_t rows_before(std::size_t micro, std::size_t shard) const;
  RowRange own_rows(std::size_t micro) const;
  // Lays the rows of all shards of a micro-batch out in group_ and group_labels_.
  EmbeddedRows assemble(std::size_t micro);
  void exchange_statistics(const kernels::Context& context, Gather gather);
  std::span<const float> statistics_of(std::size_t micro);
  void keep_gradient(std::size_t micro);

  StepBatches batches_;
  std::vector<std::size_t> sizes_;  // [micro, shard]
  struct MicroBatch {
    RowShape shape;
    const EmbeddingLoss* loss = nullptr;
    std::size_t statistics = 0;  // per row
  };
  std::vector<MicroBatch> micros_;
  RowShape largest_;
  std::size_t capacity_ = 0;  // rows of the largest batch
  std::size_t per_row_ = 0;   // the most statistics of a row
  // [shard, micro, block]; a block is a batch's embeddings and labels, then unused room.
  std::vector<float> values_;
  std::vector<float> statistics_;  // [shard, micro, capacity, per row]
  // Embeddings of one micro-batch, in the order of its shards.
  std::vector<float> group_, group_labels_, group_statistics_, group_gradient_;
  std::vector<float> gradient_;  // [own shard, micro, columns * capacity * width]
  std::vector<double> losses_;
};

}  // namespace tandem::tasks::embedding
