// The interface of the losses of embeddings. A loss is a function of the embeddings of one group of
// rows: the micro-batch of one logical shard, or the rows of all shards when embeddings are
// gathered over ranks.
//
// Ranks share the work in two passes: statistics of the rows that a rank owns, then, when those of
// all rows are known, the gradient of its own rows. Sums have an order that global row and column
// fix: the results are the same bits for any split into ranges and any number of threads.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tandem/kernels/context.h"

namespace tandem::tasks::embedding {

// The embeddings and labels of a group. Views; the caller keeps the memory.
struct EmbeddedRows {
  std::size_t rows = 0;
  std::size_t columns = 0;        // text columns: anchor, positive, negatives; or sentences 1 and 2
  std::size_t width = 0;          // components of an embedding
  std::span<const float> values;  // [columns, rows, width]
  std::span<const float> labels;  // [rows, labels per row]; empty when the data has no label
  std::span<const float> parameters = {};  // EmbeddingLoss::parameters(), one behind the other
};

// The embedding of a row in a column of the group.
inline std::span<const float> text(const EmbeddedRows& group, std::size_t column, std::size_t row) {
  return group.values.subspan((column * group.rows + row) * group.width, group.width);
}

// Rows [begin, end) of a group.
struct RowRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// A parameter of a loss, which is trained with those of the model.
struct LossParameter {
  std::string name;
  std::vector<std::size_t> shape;  // [out, in] of a matrix, [out] of a bias
};

// Immutable: ranks and threads may share one. Inputs and outputs must not overlap.
class EmbeddingLoss {
 public:
  virtual ~EmbeddingLoss() = default;

  // The loss's own parameters for embeddings of `width` components.
  virtual std::vector<LossParameter> parameters(std::size_t /*width*/) const { return {}; }

  // Numbers per row that the gradient of every row needs of all rows; 0: there is no first pass.
  virtual std::size_t statistics_per_row(const EmbeddedRows& group) const = 0;

  // Overwrites `statistics` [range, statistics_per_row] with those of the rows of `range`.
  virtual void row_statistics(const EmbeddedRows& group, RowRange range,
                              std::span<float> statistics,
                              const kernels::Context& context) const = 0;

  // The loss over all rows of the group, from `statistics` [rows, statistics_per_row] of all of
  // them. Overwrites `gradient` [columns, range, width] with the loss's gradient by the embeddings
  // of the rows of `range`. Behind it is the part that these rows have of the gradient by the
  // loss's parameters, if it has some.
  virtual double loss_and_gradient(const EmbeddedRows& group, std::span<const float> statistics,
                                   RowRange range, std::span<float> gradient,
                                   const kernels::Context& context) const = 0;
};

}  // namespace tandem::tasks::embedding
