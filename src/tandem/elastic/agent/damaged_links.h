// The frames that arrived damaged between the nodes of a job, and the node that has to leave if a
// link damages frames repeatedly.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <span>

#include "tandem/elastic/protocol/view.h"

namespace tandem::elastic {

class DamagedLinks {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMost = 5;
  static constexpr std::chrono::minutes kWithin{10};

  // A frame from `from` to `to` arrived damaged. Returns the number of frames that this link, in
  // either direction, has damaged within kWithin.
  std::size_t add(membership::NodeId from, membership::NodeId to, Clock::time_point now);

  // The node that leaves because one of its links has damaged kMost frames within kWithin: the end
  // of that link with more damaged frames on all of its links, otherwise the later one of
  // `members`. Every agent gets the same result from the same damage.
  std::optional<membership::NodeId> leaves(std::span<const membership::Member> members,
                                           Clock::time_point now);

 private:
  struct Damage {
    membership::NodeId from = 0;
    membership::NodeId to = 0;
    Clock::time_point at;
    bool concerns(membership::NodeId node) const { return from == node || to == node; }
  };
  void forget_old(Clock::time_point now);
  std::size_t frames(membership::NodeId a, membership::NodeId b) const;
  std::size_t frames(membership::NodeId node) const;

  std::deque<Damage> damages_;  // oldest first
};

}  // namespace tandem::elastic
