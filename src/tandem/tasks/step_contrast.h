// A loss that compares the texts of all logical shards of a micro-batch
// (docs/design/0028-contrast-over-the-step.md).
//
// A step of such a task has two passes. In the first one every rank embeds the texts of its shards.
// The ranks exchange the embeddings, and each computes the gradient of the loss by the embeddings
// of its own shards. In the second pass, forward and backward of a micro-batch turn that gradient
// into gradients of the parameters.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/kernels/context.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::tasks {

// The micro-batches of a step.
struct StepBatches {
  std::size_t first_shard = 0, end_shard = 0;  // the shards of this rank
  std::size_t shards = 0;                      // shards of all ranks
  std::size_t micro_batches = 0;               // micro batches of each shard
  std::span<const std::size_t> sizes;          // [micro_batches, shards] features
};

struct BatchPosition {
  std::size_t micro = 0;
  std::size_t shard = 0;
};

class StepContrast {
 public:
  virtual ~StepContrast() = default;

  // Exchanges `values` [shards, values per shard]: each rank brings the values of its shards.
  using Gather = FunctionRef<void(std::span<float> values)>;

  // Bytes that such a step needs in addition to Task::plan_training(), with up to `batch_size`
  // features in a micro-batch.
  virtual std::size_t bytes(const StepBatches& batches, std::size_t batch_size) const = 0;
  // Starts a step. Whatever an earlier step left behind is forgotten, because a failed step is
  // repeated.
  virtual void begin(const StepBatches& batches) = 0;
  // Embeds the batch of the last Task::load_train_batch(), which is at `position`.
  virtual void embed(const kernels::Context& context, const nn::Weights& weights,
                     const nn::DropoutStream& dropout, BatchPosition position) = 0;
  // Computes the loss of every micro-batch and its gradient. Collective.
  virtual void compare(const kernels::Context& context, Gather gather) = 0;
  // Task::forward() and Task::backward() of the loaded batch use the loss and the gradient of this
  // place. The mean over shards of their gradients is the gradient of the loss.
  virtual void select(BatchPosition position) = 0;
};

}  // namespace tandem::tasks
