#include "tandem/text/sequence_template.h"

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::text {

namespace {

void add_token(std::int32_t token, std::vector<std::int32_t>& ids) {
  if (token != SequenceTemplate::kNoToken) ids.push_back(token);
}

}  // namespace

void append_sequence(const SequenceTemplate& frame, std::span<const std::int32_t> text,
                     std::vector<std::int32_t>& ids, std::vector<std::int32_t>& type_ids) {
  add_token(frame.cls_id, ids);
  ids.insert(ids.end(), text.begin(), text.end());
  if (!frame.leaves_out_end(text.size() + frame.special_tokens_of_one()))
    add_token(frame.sep_id, ids);
  type_ids.resize(type_ids.size() + frame.tokens_of_one(text.size()), 0);
}

void append_sequence(const SequenceTemplate& frame, std::span<const std::int32_t> first,
                     std::span<const std::int32_t> second, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& type_ids) {
  const bool own = frame.separator_id != SequenceTemplate::kNoToken;
  add_token(frame.cls_id, ids);
  ids.insert(ids.end(), first.begin(), first.end());
  ids.insert(ids.end(), frame.num_separators, own ? frame.separator_id : frame.sep_id);
  ids.insert(ids.end(), second.begin(), second.end());
  const std::size_t texts = first.size() + second.size();
  if (!frame.leaves_out_end(texts + frame.special_tokens_of_pair())) add_token(frame.sep_id, ids);
  const std::size_t begin = type_ids.size();
  type_ids.resize(begin + frame.second_begin(first.size()), 0);
  type_ids.resize(begin + frame.tokens_of_pair(texts), frame.second_type_id);
}

void require_a_token(std::size_t special_tokens, std::size_t text_tokens) {
  if (special_tokens + text_tokens > 0) return;
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
