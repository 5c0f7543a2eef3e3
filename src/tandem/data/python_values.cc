#include "tandem/data/python_values.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

#include "tandem/data/json_cursor.h"

namespace tandem::data {
namespace {

constexpr std::string_view kNumber = "0.5";  // as long as the shortest word, NaN
constexpr std::size_t kPositional = 3;       // columns that run_qa finds by their place

bool fits(std::string_view number) {
  double value = 0;
  std::uint64_t integer = 0;
  const bool fraction = number.find_first_of(".eE") != number.npos;
  const std::string_view digits = number.substr(number.starts_with('-') ? 1 : 0);
  const auto error =
      fraction ? std::from_chars(number.data(), number.data() + number.size(), value).ec
               : std::from_chars(digits.data(), digits.data() + digits.size(), integer).ec;
  return error == std::errc() && (fraction || !number.starts_with('-') || integer <= INT64_MAX);
}

class Replacer {
 public:
  Replacer(std::string& text, std::span<const std::string_view> keys) : text_(text), keys_(keys) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        string();
      } else if (c == '{' || c == '[') {
        levels_.push_back({.wanted = wanted()});
        levels_.back().inherited = levels_.back().wanted;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (!levels_.empty()) levels_.pop_back();
        ++at_;
      } else if (c == 'N' || c == 'I' || c == '-' || (c >= '0' && c <= '9')) {
        scalar();
      } else {
        ++at_;
      }
    }
  }

 private:
  struct Level {
    bool wanted = true;     // the value that is being read
    bool inherited = true;  // the object or list itself
    std::size_t keys = 0;   // so far
  };

  bool wanted() const { return levels_.empty() || levels_.back().wanted; }

  void string() {
    const std::size_t begin = at_ + 1;
    std::size_t end = begin;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    end = std::min(end, text_.size());
    at_ = std::min(end + 1, text_.size());
    const std::size_t next = text_.find_first_not_of(" \t\r\n", at_);
    if (next != text_.npos && text_[next] == ':' && !levels_.empty()) {
      Level& level = levels_.back();
      const auto key = std::string_view(text_).substr(begin, end - begin);
      const bool named = std::find(keys_.begin(), keys_.end(), key) != keys_.end();
      level.wanted = level.inherited && (named || level.keys < kPositional);
      ++level.keys;
    } else if (!wanted()) {
      replace_halves(begin, end);
    }
  }

  // "\ud83d" without its other half, in the string [begin, end).
  void replace_halves(std::size_t begin, std::size_t end) {
    const auto raw = std::string_view(text_).substr(0, end);
    for (std::size_t i = raw.find('\\', begin); i != raw.npos; i = raw.find('\\', i)) {
      const std::size_t length = json_escape_length(raw, i);
      if (length == 0) text_.replace(i, 6, "\\ufffd");
      i += length == 0 ? 6 : length;
    }
  }

  void scalar() {
    const std::size_t begin = at_;
    const std::string_view token = json_token(text_, begin);
    at_ = begin + token.size();
    const bool word = token.ends_with("NaN") || token.ends_with("Infinity");
    const bool long_number = token.size() > 18 || token.find_first_of("eE") != token.npos;
    if (!is_json_scalar(token) || token.size() < kNumber.size()) return;
    if (!word && (!long_number || fits(token))) return;
    std::fill(text_.begin() + static_cast<std::ptrdiff_t>(begin),
              text_.begin() + static_cast<std::ptrdiff_t>(at_), ' ');
    text_.replace(begin, kNumber.size(), kNumber);
  }

  std::string& text_;
  const std::span<const std::string_view> keys_;
  std::vector<Level> levels_;
  std::size_t at_ = 0;
};

}  // namespace

void replace_python_values(std::string& text, std::span<const std::string_view> keys) {
  Replacer(text, keys).run();
}

}  // namespace tandem::data
