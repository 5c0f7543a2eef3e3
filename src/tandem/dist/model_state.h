// The memory of a training job that outlives a set of ranks: weights, what the optimizer keeps, the
// mean gradient of the newest step. Everything in it is a function of the step, not of who computed
// it, so whoever has it mapped can go on.
//
// There is one copy per node, in memory shared by its ranks; every rank maps all of it, and what is
// mapped stays when others die. A world of one uses ordinary memory. Gradients of shards, buckets
// and flags belong to one set of ranks: gradient_engine.h.
//
// Thread-safety: reading is safe for all; who writes what and when is said at each array.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "tandem/comm/api/communicator.h"
#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"

namespace tandem::dist {

struct ModelStateOptions {
  std::size_t elements = 0;       // f32 elements of the flat parameter layout
  std::size_t bf16_elements = 0;  // a bf16 copy is kept of so many of the first weights; 0: none
  // f32 elements that the optimizer keeps (optim::Optimizer)
  std::size_t optimizer_state_elements = 0;
};

class ModelState {
 public:
  // Elements whose squared norm is one partial sum; what ranks reduce and update begins and ends at
  // multiples of it.
  static constexpr std::size_t kChunk = 65536;

  // Collective over the node: the first of its ranks in `communicator` contributes the memory. Null
  // or of size 1: one process, ordinary memory. All arrays start as zeros. The memory does not need
  // the communicator afterwards. Throws InvalidArgument (no parameters), IoError (no memory),
  // CommError.
  ModelState(comm::Communicator* communicator, const ModelStateOptions& options);
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  const ModelStateOptions& options() const { return options_; }
  std::size_t elements() const { return options_.elements; }
  bool shared() const { return node_memory_.has_value(); }

  // Written by the node leader at start, then by each rank in the ranges that its engine gives it,
  // between GradientEngine::finish() and publish(); otherwise read only.
  std::span<float> weights() const { return weights_; }
  std::span<bfloat16> bf16_weights() const { return bf16_weights_; }
  std::span<float> optimizer_state() const { return optimizer_state_; }

  // For the engine. The mean gradient [elements], beside it the squared norm of each chunk. Until
  // the shards of a step are summed, the node leader's backward may write its first shard here.
  std::span<float> gradient() const { return gradient_; }
  std::span<double> norm_partials() const { return norm_partials_; }

 private:
  std::size_t place(std::byte* memory);

  ModelStateOptions options_;
  Buffer own_memory_;                            // world of one
  std::optional<comm::NodeMemory> node_memory_;  // otherwise
  std::span<float> weights_;
  std::span<bfloat16> bf16_weights_;
  std::span<float> optimizer_state_;
  std::span<float> gradient_;
  std::span<double> norm_partials_;
};

}  // namespace tandem::dist
