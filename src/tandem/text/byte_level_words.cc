#include "tandem/text/byte_level_words.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <span>

#include "tandem/core/ascii.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

struct Range {
  char32_t first, last;
  bool contains(char32_t c) const { return c >= first && c <= last; }
};

// Letters of Unicode 15.1 and 16, which the crate's regular expressions know and ICU 72 does not.
constexpr Range kNewLetters[] = {
    {0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3},
    {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389},
    {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7},
    {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0}, {0x13460, 0x143fa},
    {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed},
    {0x1e5f0, 0x1e5f0}, {0x2ebf0, 0x2ee5d}};
constexpr Range kNewNumbers[] = {{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9},
                                 {0x16130, 0x16139}, {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9},
                                 {0x1e5f1, 0x1e5fa}};

bool is_in(std::span<const Range> ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const Range& range) { return range.contains(c); });
}

constexpr std::string_view kEndings[] = {"s", "t", "re", "ve", "m", "ll", "d"};

// Bytes of an apostrophe and an ending of verbs in any case that the text begins with; 0: none.
std::size_t size_of_ending(std::string_view text) {
  constexpr std::string_view kLongS = "\u017f";  // an "s" in another case
  if (!text.starts_with('\'')) return 0;
  const std::string_view behind = text.substr(1);
  if (behind.starts_with(kLongS)) return 1 + kLongS.size();
  for (const std::string_view ending : kEndings)
    if (ascii_lower(behind.substr(0, ending.size())) == ending) return 1 + ending.size();
  return 0;
}

bool is_line_break(char c) { return c == '\r' || c == '\n'; }

std::size_t end_of_breaks(std::string_view text, std::size_t at) {
  while (at < text.size() && is_line_break(text[at])) ++at;
  return at;
}

constexpr std::string_view kSplitBegin =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
constexpr std::string_view kSplitEnd = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

std::optional<WordRule> word_rule_of(std::string_view split_pattern) {
  if (!split_pattern.starts_with(kSplitBegin) || !split_pattern.ends_with(kSplitEnd))
    return std::nullopt;
  if (split_pattern.size() < kSplitBegin.size() + kSplitEnd.size()) return std::nullopt;
  split_pattern.remove_prefix(kSplitBegin.size());
  split_pattern.remove_suffix(kSplitEnd.size());
  if (split_pattern.empty()) return WordRule::kOneDigit;
  if (split_pattern == "{1,3}") return WordRule::kThreeDigits;
  return std::nullopt;
}

ByteLevelWords::ByteLevelWords(WordRule rule) : rule_(rule), kinds_(0x10000) {
  for (char32_t c = 0; c < kinds_.size(); ++c) kinds_[c] = compute_kind(c);
}

ByteLevelWords::Kind ByteLevelWords::compute_kind(char32_t c) {
  const auto mask = U_GET_GC_MASK(static_cast<UChar32>(c));
  if ((mask & U_GC_L_MASK) != 0 || is_in(kNewLetters, c)) return Kind::kLetter;
  if ((mask & U_GC_N_MASK) != 0 || is_in(kNewNumbers, c)) return Kind::kNumber;
  return u_isUWhiteSpace(static_cast<UChar32>(c)) ? Kind::kSpace : Kind::kOther;
}

std::size_t ByteLevelWords::end_of_word(std::string_view text, std::size_t at) const {
  if (rule_ == WordRule::kNone) return text.size();
  return rule_ == WordRule::kGpt2 ? end_of_gpt2_word(text, at) : end_of_split_word(text, at);
}

std::size_t ByteLevelWords::end_of_stretch(std::string_view text, std::size_t at) const {
  std::size_t next = at;
  if (kind(next_code_point(text, next)) == Kind::kNumber) return next;
  for (at = next; next < text.size(); at = next)
    if (kind(next_code_point(text, next)) == Kind::kNumber) break;
  return at;
}

std::size_t ByteLevelWords::end_of_split_word(std::string_view text, std::size_t at) const {
  if (const std::size_t ending = size_of_ending(text.substr(at)); ending > 0) return at + ending;
  std::size_t next = at;
  const Kind first = kind(next_code_point(text, next));
  if (first == Kind::kLetter) return end_of_run(text, next, Kind::kLetter);
  if (first == Kind::kNumber) return end_of_numbers(text, next);
  std::size_t behind = next;
  const Kind second =
      next < text.size() ? kind(next_code_point(text, behind)) : Kind::kNumber;  // or any number
  if (second == Kind::kLetter && !is_line_break(text[at]))
    return end_of_run(text, behind, Kind::kLetter);
  if (first == Kind::kOther) return end_of_breaks(text, end_of_run(text, next, Kind::kOther));
  if (text[at] == ' ' && second == Kind::kOther)
    return end_of_breaks(text, end_of_run(text, behind, Kind::kOther));
  const std::size_t end = end_of_run(text, at, Kind::kSpace);
  const std::size_t lines = end_of_lines(text, at, end);
  return lines > at ? lines : end_of_blanks(text, at);
}

// The numbers of a word behind its first one.
std::size_t ByteLevelWords::end_of_numbers(std::string_view text, std::size_t at) const {
  const int most = rule_ == WordRule::kThreeDigits ? 2 : 0;
  std::size_t next = at;
  for (int more = 0; more < most && next < text.size(); ++more, at = next)
    if (kind(next_code_point(text, next)) != Kind::kNumber) break;
  return at;
}

// The end of the last line break in text[at, end); `at` without one.
std::size_t ByteLevelWords::end_of_lines(std::string_view text, std::size_t at,
                                         std::size_t end) const {
  while (end > at && !is_line_break(text[end - 1])) --end;
  return end;
}

std::size_t ByteLevelWords::end_of_gpt2_word(std::string_view text, std::size_t at) const {
  if (text[at] == '\'') {
    const std::string_view behind = text.substr(at + 1);
    for (const std::string_view ending : kEndings)
      if (behind.starts_with(ending)) return at + 1 + ending.size();
  }
  std::size_t next = at;
  const Kind first = kind(next_code_point(text, next));
  if (first != Kind::kSpace) return end_of_run(text, next, first);
  if (text[at] == ' ' && next < text.size()) {
    std::size_t behind = next;
    const Kind second = kind(next_code_point(text, behind));
    if (second != Kind::kSpace) return end_of_run(text, behind, second);
  }
  return end_of_blanks(text, at);
}

std::size_t ByteLevelWords::end_of_run(std::string_view text, std::size_t at, Kind run) const {
  for (std::size_t next = at; next < text.size(); at = next)
    if (kind(next_code_point(text, next)) != run) break;
  return at;
}

// All of them at the end of the text, else all but the last, but at least one.
std::size_t ByteLevelWords::end_of_blanks(std::string_view text, std::size_t at) const {
  const std::size_t end = end_of_run(text, at, Kind::kSpace);
  if (end == text.size()) return end;
  std::size_t last = at;
  for (std::size_t next = at; next < end; next_code_point(text, next)) last = next;
  return last > at ? last : end;
}

}  // namespace tandem::text
