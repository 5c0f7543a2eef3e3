#include "tandem/tasks/supervised/packing.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

#include "tandem/core/error.h"

namespace tandem::supervised {

std::vector<std::vector<std::uint32_t>> pack(std::span<const std::size_t> lengths,
                                             std::size_t most) {
  std::vector<std::uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<std::uint32_t>> samples;
  std::map<std::size_t, std::deque<std::size_t>> by_room;  // samples, the oldest first
  for (const std::uint32_t i : order) {
    TANDEM_CHECK(lengths[i] > 0 && lengths[i] <= most, "a sequence of {} tokens", lengths[i]);
    const auto found = by_room.lower_bound(lengths[i]);
    std::size_t room = most, sample = samples.size();
    if (found == by_room.end()) {
      samples.emplace_back();
    } else {
      room = found->first;
      sample = found->second.front();
      found->second.pop_front();
      if (found->second.empty()) by_room.erase(found);
    }
    samples[sample].push_back(i);
    if (room > lengths[i]) by_room[room - lengths[i]].push_back(sample);
  }
  return samples;
}

}  // namespace tandem::supervised
