#include "tandem/elastic/agent/worker_count.h"

#include <algorithm>
#include <utility>

namespace tandem::elastic {

void WorkerCount::note_view(std::span<const membership::Member> members, membership::NodeId self) {
  std::map<membership::NodeId, int> before = std::exchange(present_, {});
  std::size_t num_new = 0;
  for (const membership::Member& member : members) {
    int most = member.peer.id == self ? own_ : static_cast<int>(member.workers);
    if (const auto known = before.find(member.peer.id); known != before.end()) {
      most = std::max(most, known->second);
      before.erase(known);
    } else {
      ++num_new;
    }
    present_[member.peer.id] = most;
  }
  // New nodes take the places of those that left first.
  const auto replaced = std::min(num_new, absent_.size());
  absent_.erase(absent_.begin(), absent_.begin() + static_cast<std::ptrdiff_t>(replaced));
  for (const auto& [id, workers] : before) absent_.push_back(workers);
  while (!absent_.empty() && absent_.size() + present_.size() > max_nodes_)
    absent_.erase(absent_.begin());
}

int WorkerCount::total() const {
  if (given_ > 1) return given_;
  int total = 0;
  for (const auto& [id, workers] : present_) total += workers;
  for (std::size_t node = present_.size(); node < max_nodes_; ++node) {
    const std::size_t endpoint = node - present_.size();
    total += endpoint < absent_.size() ? absent_[endpoint] : own_;
  }
  return total;
}

}  // namespace tandem::elastic
