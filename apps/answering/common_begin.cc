#include "apps/answering/common_begin.h"

#include <algorithm>
#include <bit>

namespace tandem::apps {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::size_t kLeastLaneRows = 64;

Ids tokens_of(const tasks::TokenSequences& sequences, std::size_t i) {
  Ids ids, types;
  sequences.append_tokens(i, ids, types);
  return ids;
}

}  // namespace

std::optional<CommonBegin> common_begin(const tasks::TokenSequences& sequences) {
  if (sequences.size() < 2) return std::nullopt;
  Ids begin = tokens_of(sequences, 0);
  std::size_t tokens = begin.size(), longest = begin.size();
  begin.pop_back();
  for (std::size_t i = 1; i < sequences.size() && !begin.empty(); ++i) {
    const Ids ids = tokens_of(sequences, i);
    tokens += ids.size();
    longest = std::max(longest, ids.size());
    const auto end =
        begin.begin() + static_cast<std::ptrdiff_t>(std::min(begin.size(), ids.size() - 1));
    begin.erase(std::mismatch(begin.begin(), end, ids.begin()).first, begin.end());
  }
  const bool saves_time = 8 * begin.size() * (sequences.size() - 1) >= tokens;
  if (begin.empty() || !saves_time || longest > kMostKeptRows) return std::nullopt;
  return CommonBegin{.tokens = std::move(begin), .kept = nullptr};
}

std::size_t lane_rows(std::size_t tokens) {
  return std::max(kLeastLaneRows, std::bit_ceil(tokens));
}

std::vector<models::KeyValues*> Lanes::behind(const std::shared_ptr<const models::KeyValues>& begin,
                                              std::size_t count, std::size_t longest) {
  const std::size_t needed = lane_rows(longest);
  if (capacity_ < needed || capacity_ * count > kMostKeptRows) {
    lanes_.clear();
    capacity_ = needed;
  }
  if (begin_ != begin) {
    begin_ = begin;
    for (models::KeyValues& lane : lanes_) lane.assign(*begin);
  }
  while (lanes_.size() < count) lanes_.emplace_back(make_(capacity_)).assign(*begin);
  std::vector<models::KeyValues*> lanes;
  for (std::size_t i = 0; i < count; ++i) {
    lanes_[i].keep(begin->rows());
    lanes.push_back(&lanes_[i]);
  }
  return lanes;
}

}  // namespace tandem::apps
