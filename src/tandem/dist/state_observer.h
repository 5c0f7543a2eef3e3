// Reports from a GradientEngine of an elastic job about the state of its node, and requests to a
// node that has learned the state from another one (docs/design/0024). elastic/transfer implements
// both.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/optim/optimizer.h"

namespace tandem::dist {

// Is informed when the node's state may be read. Called by the thread of the engine. The default of
// each function does nothing.
class StateObserver {
 public:
  virtual ~StateObserver() = default;
  // The state may be written to from now on. Returns when no reader is left.
  virtual void hold() {}
  // The mean gradient of `update` is whole in the model, and stays so until keep_gradient().
  virtual void reduced(const optim::OptimizerStep& /*update*/) {}
  // The gradient is overwritten from now on: what has not been sent is copied before.
  virtual void keep_gradient(ThreadPool& /*threads*/) {}
  // The state is whole, of `step`, and stays so until hold().
  virtual void settled(std::uint64_t /*step*/) {}
  // This process does not lead its node any more, so it gets no notice when the state is written
  // to.
  virtual void give_up() {}
};

// The state that a node has learned while the others trained.
class LearnedState {
 public:
  virtual ~LearnedState() = default;
  // Takes what is left until the state is that of `step`. Returns false if it will not be: nothing
  // has arrived for a while, or the sender is gone.
  virtual bool reach(std::uint64_t step) = 0;
  // After reach(): checksum_of_chunk() of all chunks.
  virtual std::vector<std::uint64_t> checksums() const = 0;
};

}  // namespace tandem::dist
