#include "fuzz/growth.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

namespace tandem::fuzz {
namespace {

using Pair = std::pair<std::size_t, std::size_t>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Where pieces may begin and end.
std::vector<std::size_t> borders_of(std::string_view text) {
  std::vector<std::size_t> borders = {0};
  for (std::size_t i = 1; i <= text.size(); ++i) {
    if (i == text.size() || !is_word(text[i - 1]) || !is_word(text[i])) borders.push_back(i);
  }
  return borders;
}

std::vector<Pair> words_of(std::string_view text) {
  std::vector<Pair> words;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_word(text[i])) continue;
    const std::size_t begin = i;
    while (i < text.size() && is_word(text[i])) ++i;
    words.emplace_back(begin, i);
  }
  return words;
}

// Places of brackets that belong together, those inside before those around them.
std::vector<Pair> brackets_of(std::string_view text) {
  std::vector<Pair> pairs;
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == '{') open.push_back(i);
    if ((text[i] == ']' || text[i] == '}') && !open.empty()) {
      pairs.emplace_back(open.back(), i);
      open.pop_back();
    }
  }
  return pairs;
}

// Pieces that a list can have once more: from behind a bracket or separator to behind the next
// separator of the same kind inside of the same brackets; strings hold neither.
std::vector<Pair> members_of(std::string_view text) {
  constexpr std::string_view kSeparators = ",\n ";
  using Starts = std::array<std::size_t, kSeparators.size()>;
  std::vector<Pair> members;
  std::vector<Starts> open = {{}};
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && (i == 0 || text[i - 1] != '\\')) in_string = !in_string;
    if (in_string) continue;
    if (c == '[' || c == '{') open.push_back({i + 1, i + 1, i + 1});
    if ((c == ']' || c == '}') && open.size() > 1) open.pop_back();
    const std::size_t kind = kSeparators.find(c);
    if (kind == std::string_view::npos) continue;
    members.emplace_back(open.back()[kind], i + 1);
    open.back()[kind] = i + 1;
  }
  return members;
}

Growth repeat(std::string_view text, std::size_t begin, std::size_t end) {
  Growth growth;
  growth.head = text.substr(0, begin);
  growth.open = text.substr(begin, end - begin);
  growth.tail = text.substr(end);
  return growth;
}

// The text between the brackets `outer` and `inner` many times around that between those of
// `inner`.
Growth nest(std::string_view text, Pair outer, Pair inner) {
  Growth growth;
  growth.head = text.substr(0, outer.first);
  growth.open = text.substr(outer.first, inner.first - outer.first);
  growth.middle = text.substr(inner.first, inner.second + 1 - inner.first);
  growth.close = text.substr(inner.second + 1, outer.second - inner.second);
  growth.tail = text.substr(outer.second + 1);
  return growth;
}

}  // namespace

Growth make_growth(std::uint64_t number, const std::vector<std::string_view>& inputs) {
  std::mt19937_64 random(number);
  const auto one_of = [&](const auto& list) { return list[random() % list.size()]; };
  const std::string_view text = one_of(inputs);
  const std::uint64_t kind = random() % 5;
  const std::vector<Pair> brackets = brackets_of(text);
  if (kind == 0 && brackets.size() > 1) {
    const Pair first = one_of(brackets), second = one_of(brackets);
    const Pair outer = std::min(first, second), inner = std::max(first, second);
    if (outer.first < inner.first && inner.second < outer.second) return nest(text, outer, inner);
  }
  const std::vector<std::size_t> borders = borders_of(text);
  const std::vector<Pair> members = members_of(text);
  const std::size_t first = one_of(borders), second = one_of(borders);
  const bool any = members.empty() || random() % 4 == 0;
  const Pair piece = any ? Pair(std::min(first, second), std::max(first, second)) : one_of(members);
  Growth growth = repeat(text, piece.first, piece.second);
  const std::vector<Pair> words = words_of(growth.open);
  if (kind > 1 && !words.empty()) {
    const Pair word = one_of(words);
    growth.number_at = word.first;
    growth.number_size = word.second - word.first;
    const auto begin = growth.open.begin() + static_cast<std::ptrdiff_t>(word.first);
    growth.only_digits =
        std::all_of(begin, begin + static_cast<std::ptrdiff_t>(growth.number_size), is_digit);
  }
  return growth;
}

std::string grown(const Growth& growth, std::size_t bytes) {
  const std::size_t fixed = growth.head.size() + growth.middle.size() + growth.tail.size();
  const std::size_t each = std::max<std::size_t>(1, growth.open.size() + growth.close.size());
  const std::size_t count = std::max<std::size_t>(1, (bytes - std::min(bytes, fixed)) / each);
  std::string text = growth.head;
  for (std::size_t i = 0; i < count; ++i) {
    if (growth.number_size == 0) {
      text += growth.open;
      continue;
    }
    text.append(growth.open, 0, growth.number_at);
    if (!growth.only_digits) text += 'n';
    text += std::to_string(10'000'000 + i);
    text.append(growth.open, growth.number_at + growth.number_size);
  }
  text += growth.middle;
  for (std::size_t i = 0; i < count; ++i) text += growth.close;
  return text + growth.tail;
}

}  // namespace tandem::fuzz
