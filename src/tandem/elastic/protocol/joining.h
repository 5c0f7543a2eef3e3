// How a node without state prepares to join a running job. Its workers learn the state while the
// job continues (docs/design/0024). Until that is over the agent does not report its workers, so
// that no view includes this node. After any failure the node still becomes a member, and gets the
// state inside its first view.
//
// As the agent (agent.h), a machine without sockets, clock and threads, which the simulator runs
// too. Thread-safety: one caller at a time.
#pragma once

#include <optional>

#include "tandem/elastic/protocol/membership.h"

namespace tandem::membership {

class Joining {
 public:
  // `timeout`: limit of a transfer.
  explicit Joining(Time timeout) : timeout_(timeout) {}

  // Workers of a node that has been in no view are ready. True if they are held back.
  bool keeps_back(Time now, const Membership& membership);
  // The leader has sent Learn: this node may learn. Returns the node to ask for the state; nothing
  // while a transfer is running.
  std::optional<Peer> begin(Time now, NodeId self, const View& view);
  bool under_way() const { return state_ == State::kUnderWay; }
  const Peer& source() const { return source_; }
  // The sender has not connected, or is lost: another one is asked at the next Learn, if any.
  void failed(Time now);
  // The learning worker is gone, and with it the state that it had received.
  void worker_lost();
  // The state is complete, or another sender would not help.
  void end() { state_ = State::kOver; }
  bool is_over() const { return state_ == State::kOver; }
  // Call periodically. True if an attempt has just failed: the sender is in no view any more, or no
  // message has arrived for too long.
  bool wake(Time now, const Membership& membership);

 private:
  enum class State { kNot, kAwaited, kUnderWay, kOver };

  const Time timeout_;
  State state_ = State::kNot;
  Peer source_;
  int attempts_ = 0;
  Time since_{};
};

}  // namespace tandem::membership
