#include "tandem/text/sequence_template.h"

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::text {

void append_sequence(const SequenceTemplate& frame, std::span<const std::int32_t> text,
                     std::vector<std::int32_t>& ids, std::vector<std::int32_t>& type_ids) {
  const auto add = [&](std::int32_t token) {
    if (token != SequenceTemplate::kNoToken) ids.push_back(token);
  };
  add(frame.cls_id);
  ids.insert(ids.end(), text.begin(), text.end());
  add(frame.sep_id);
  type_ids.resize(type_ids.size() + text.size() + frame.special_tokens_of_one(), 0);
}

void append_sequence(const SequenceTemplate& frame, std::span<const std::int32_t> first,
                     std::span<const std::int32_t> second, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& type_ids) {
  ids.push_back(frame.cls_id);
  ids.insert(ids.end(), first.begin(), first.end());
  ids.insert(ids.end(), frame.num_separators, frame.sep_id);
  ids.insert(ids.end(), second.begin(), second.end());
  ids.push_back(frame.sep_id);
  type_ids.resize(type_ids.size() + frame.second_begin(first.size()), 0);
  type_ids.resize(type_ids.size() + second.size() + 1, frame.second_type_id);
}

void require_a_token(const SequenceTemplate& frame, std::span<const std::int32_t> text) {
  if (!text.empty() || frame.special_tokens_of_one() > 0) return;
  raise<DataError>(
      "found no token, expected one at least: the tokenizer puts none around a text; leave the "
      "text out");
}

std::pair<std::size_t, std::size_t> truncate_longest_first(std::size_t first, std::size_t second,
                                                           std::size_t room) {
  if (first + second <= room) return {first, second};
  // The crate cuts the longer text to what the shorter one leaves, but not below the shorter one's
  // length; where that is not enough both get half, and the odd token goes to the longer one.
  const bool swapped = first > second;
  std::size_t shorter = std::min(first, second);
  std::size_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = shorter + room % 2;
  }
  return swapped ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

}  // namespace tandem::text
