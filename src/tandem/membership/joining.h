// What a node that holds nothing does before it is a member of a job that runs: its workers learn
// the state beside the job (docs/design/0024), and until that is over the agent hears of no workers
// here, so that no view has this node. Whatever fails, the node is a member in the end, and gets
// the state inside its first view.
//
// As the agent (agent.h) a machine without sockets, clock and threads, which the simulator runs,
// too. Thread-safety: one caller at a time.
#pragma once

#include <optional>

#include "tandem/membership/agent.h"

namespace tandem::membership {

class Joining {
 public:
  // `patience`: for a transfer.
  explicit Joining(Time patience) : patience_(patience) {}

  // Workers of a node that has been in no view are ready. Whether they are kept back.
  bool keeps_back(Time now, const Agent& agent);
  // The leader has said that this node may learn (Learn). Whom to ask for the state; nobody: what
  // is under way goes on.
  std::optional<Peer> begin(Time now, NodeId self, const View& view);
  bool under_way() const { return state_ == State::kUnderWay; }
  const Peer& source() const { return source_; }
  // The sender has not come, or is gone: another one is asked at the next Learn, if any.
  void failed(Time now);
  // The worker that learns is gone, and with it what it had.
  void worker_lost();
  // The state is there, or another sender would not help.
  void end() { state_ = State::kOver; }
  bool is_over() const { return state_ == State::kOver; }
  // Now and then. Whether an attempt has just ended in vain: the sender is in no view any more, or
  // nobody has said anything for too long.
  bool wake(Time now, const Agent& agent);

 private:
  enum class State { kNot, kAwaited, kUnderWay, kOver };

  const Time patience_;
  State state_ = State::kNot;
  Peer source_;
  int attempts_ = 0;
  Time since_{};
};

}  // namespace tandem::membership
