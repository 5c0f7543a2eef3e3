// State of a learner: a node that receives the state of a job while the job trains, before it is a
// member (docs/design/0024). The state is cut into chunks, and each chunk that has been sent is
// followed by the mean gradient of every step after it. All goes over one connection in order, so
// sender and learner keep the same ledger and never ask each other.
//
// Pure: state_source.h and state_learner.h use it, and so does the simulator.
// Thread-safety: one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::elastic {

class LearnerLedger {
 public:
  explicit LearnerLedger(std::size_t chunks) : steps_(chunks) {}
  virtual ~LearnerLedger() = default;

  std::size_t size() const { return steps_.size(); }
  // A chunk that is to be sent as it is, or none.
  std::optional<std::size_t> next_missing() const;
  // The chunk goes or has come as it is after `step`.
  void put(std::size_t chunk, std::uint64_t step);
  // Whether the gradient of `step` makes what is there of the chunk what it is after that step.
  virtual bool takes_gradient(std::size_t chunk, std::uint64_t step) const;
  void put_gradient(std::size_t chunk, std::uint64_t step) { steps_[chunk] = step; }
  // There was no room for its gradient: it has to be sent again.
  void drop(std::size_t chunk);
  // The state of the sender is that of `step`. Chunks of other steps have missed something (an
  // update that others finished, a state that came from elsewhere) and have to be sent again.
  virtual void settled(std::uint64_t step);

  // The step of which everything is there, or none.
  std::optional<std::uint64_t> whole_at() const;

  // Once per step. Whether many steps have passed since there were more chunks than ever: what the
  // connection carries goes into gradients, and the learner does not become level.
  bool stalls();

 private:
  static constexpr int kTimeout = 8;  // steps
  std::size_t present() const;

  std::vector<std::optional<std::uint64_t>> steps_;
  std::size_t first_missing_ = 0;  // all before it are there
  std::size_t most_ = 0;
  int steps_since_most_ = 0;
};

}  // namespace tandem::elastic
