// The batches of a training step, for a loss that compares the texts of all logical shards of a
// micro-batch (docs/design/0028-contrast-over-the-step.md).
//
// A step of such a task has two passes. In Task::begin_step() every rank embeds the texts of its
// shards. The ranks exchange the embeddings, and each computes the gradient of the loss by the
// embeddings of its own shards. In the second pass, forward and backward of a micro-batch turn that
// gradient into gradients of the parameters.
#pragma once

#include <cstddef>
#include <span>

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

// Exchanges `values` [shards, values per shard]: each rank brings the values of its shards.
// Collective.
using Gather = FunctionRef<void(std::span<float> values)>;

// A step that begins: its batches, and the arguments of Task::forward() for all of them.
struct StepBegin {
  const kernels::Context& context;
  const nn::Weights& weights;
  const nn::DropoutStream& dropout;
  StepBatches batches;
  FunctionRef<void(BatchPosition)> load;  // makes a batch of this rank the current one
  Gather gather;
};

}  // namespace tandem::tasks
