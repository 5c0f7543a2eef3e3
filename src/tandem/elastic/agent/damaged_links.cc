#include "tandem/elastic/agent/damaged_links.h"

#include <algorithm>

namespace tandem::elastic {

using membership::NodeId;

std::size_t DamagedLinks::add(NodeId from, NodeId to, Clock::time_point now) {
  forget_old(now);
  damages_.push_back({from, to, now});
  return frames(from, to);
}

void DamagedLinks::forget_old(Clock::time_point now) {
  while (!damages_.empty() && damages_.front().at + kWithin < now) damages_.pop_front();
}

std::size_t DamagedLinks::frames(NodeId a, NodeId b) const {
  return static_cast<std::size_t>(std::count_if(
      damages_.begin(), damages_.end(),
      [&](const Damage& damage) { return damage.concerns(a) && damage.concerns(b); }));
}

std::size_t DamagedLinks::frames(NodeId node) const {
  return static_cast<std::size_t>(
      std::count_if(damages_.begin(), damages_.end(),
                    [&](const Damage& damage) { return damage.concerns(node); }));
}

std::optional<NodeId> DamagedLinks::leaves(std::span<const membership::Member> members,
                                           Clock::time_point now) {
  forget_old(now);
  std::optional<NodeId> worst;
  for (std::size_t later = 1; later < members.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      const NodeId a = members[earlier].peer.id;
      const NodeId b = members[later].peer.id;
      if (frames(a, b) < kMost) continue;
      const NodeId end = frames(a) > frames(b) ? a : b;
      if (!worst || frames(end) > frames(*worst)) worst = end;
    }
  }
  return worst;
}

}  // namespace tandem::elastic
