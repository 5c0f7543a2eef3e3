#include "tandem/data/json_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tandem/core/error.h"
#include "tandem/text/json_text.h"
#include "tandem/text/utf8.h"

namespace tandem::data {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Consumes at least one digit.
bool take_digits(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const auto count = static_cast<std::size_t>(end - text.begin());
  text.remove_prefix(count);
  return count > 0;
}

bool take_one_of(std::string_view& text, std::string_view bytes) {
  if (text.empty() || bytes.find(text.front()) == bytes.npos) return false;
  text.remove_prefix(1);
  return true;
}

bool is_number(std::string_view text) {
  take_one_of(text, "-");
  const bool zero = text.starts_with('0');
  const std::size_t before = text.size();
  if (!take_digits(text) || (zero && before - text.size() > 1)) return false;
  if (take_one_of(text, ".") && !take_digits(text)) return false;
  if (take_one_of(text, "eE")) {
    take_one_of(text, "+-");
    if (!take_digits(text)) return false;
  }
  return text.empty();
}

bool belongs_to_scalar(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' ||
         c == '.';
}

// The four digits behind "\u".
std::optional<std::uint32_t> hex_digits(std::string_view raw, std::size_t at) {
  if (at + 4 > raw.size()) return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : raw.substr(at, 4)) {
    const char lower = static_cast<char>(c | 0x20);
    if (!is_digit(c) && (lower < 'a' || lower > 'f')) return std::nullopt;
    value = value * 16 + static_cast<std::uint32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
  }
  return value;
}

bool is_high_half(std::uint32_t unit) { return unit >= 0xd800 && unit <= 0xdbff; }
bool is_low_half(std::uint32_t unit) { return unit >= 0xdc00 && unit <= 0xdfff; }

// The code point of the escape "\uXXXX" or of the pair at `at`, which moves behind it.
char32_t decode_unicode_escape(std::string_view raw, std::size_t& at) {
  const auto first = hex_digits(raw, at + 2);
  if (!first) raise<DataError>("not valid JSON: \\u needs four hexadecimal digits");
  const std::size_t length = json_escape_length(raw, at);
  if (length == 0) {
    raise<DataError>("{} is half of a surrogate pair; expected both halves", raw.substr(at, 6));
  }
  const std::size_t second = at + 6;
  at += length;
  if (length == 6) return *first;
  return 0x10000 + ((*first - 0xd800) << 10) + (*hex_digits(raw, second + 2) - 0xdc00);
}

}  // namespace

bool is_json_scalar(std::string_view token) {
  constexpr std::array<std::string_view, 6> kWords = {"null", "true",     "false",
                                                      "NaN",  "Infinity", "-Infinity"};
  return std::find(kWords.begin(), kWords.end(), token) != kWords.end() || is_number(token);
}

std::string_view json_token(std::string_view text, std::size_t position) {
  const std::string_view rest = text.substr(position);
  const auto end = std::find_if_not(rest.begin(), rest.end(), belongs_to_scalar);
  return rest.substr(0, static_cast<std::size_t>(end - rest.begin()));
}

char JsonCursor::peek() {
  while (position_ < text_.size() && is_blank(text_[position_])) ++position_;
  return position_ < text_.size() ? text_[position_] : '\0';
}

void JsonCursor::require_end() {
  if (!at_end()) fail("the end of the file");
}

bool JsonCursor::take(char c) {
  if (at_end() || text_[position_] != c) return false;
  ++position_;
  return true;
}

void JsonCursor::require(char c) {
  if (!take(c)) fail(fmt::format("'{}'", c));
}

std::string_view JsonCursor::string() {
  if (peek() != '"') fail("a string");
  const std::size_t begin = position_ + 1;
  std::size_t end = begin;
  while (end < text_.size() && text_[end] != '"') {
    if (static_cast<unsigned char>(text_[end]) < 0x20) {
      position_ = end;
      fail("the closing quote of a string");
    }
    end += text_[end] == '\\' ? 2 : 1;
  }
  position_ = std::min(end, text_.size());
  if (end >= text_.size()) fail("the closing quote of a string");
  ++position_;
  return text_.substr(begin, end - begin);
}

std::string_view JsonCursor::scalar() {
  peek();
  const std::string_view token = json_token(text_, position_);
  if (!is_json_scalar(token)) fail("a value");
  position_ += token.size();
  return token;
}

void JsonCursor::skip() {
  std::string open;  // the brackets that will close what is open
  const auto key = [this] {
    string();
    require(':');
  };
  while (true) {
    const char c = peek();
    if (c == '{' || c == '[') {
      ++position_;
      const char close = c == '{' ? '}' : ']';
      if (!take(close)) {
        open += close;
        if (c == '{') key();
        continue;
      }
    } else if (c == '"') {
      string();
    } else {
      scalar();
    }
    // Behind a value: the next one of the same object or list, or its end.
    while (!open.empty() && !take(',')) {
      require(open.back());
      open.pop_back();
    }
    if (open.empty()) return;
    if (open.back() == '}') key();
  }
}

void JsonCursor::fail(std::string_view expected) const {
  const std::string_view rest = text_.substr(position_);
  constexpr std::size_t kShown = 20;
  const std::size_t end = std::min({rest.find_first_of(" \t\r\n,:]}"), kShown, rest.size()});
  const std::string_view token = rest.substr(0, std::max<std::size_t>(end, 1));
  const bool readable = !text::find_invalid_utf8(token) && !token.empty() && !is_blank(token[0]);
  raise<DataError>(
      "not valid JSON: {}: found {}, expected {}", text::describe_position(text_, position_),
      rest.empty() ? "the end of the file"
      : readable   ? fmt::format("'{}'", token)
                   : fmt::format("byte 0x{:02x}",
                                 static_cast<unsigned>(static_cast<unsigned char>(rest.front()))),
      expected);
}

std::size_t json_escape_length(std::string_view raw, std::size_t at) {
  const bool hexadecimal = raw.substr(at + 1).starts_with('u');
  const auto first = hexadecimal ? hex_digits(raw, at + 2) : std::nullopt;
  if (!first) return 2;
  if (!is_high_half(*first) && !is_low_half(*first)) return 6;
  const bool two = is_high_half(*first) && raw.substr(at + 6).starts_with("\\u");
  const auto second = two ? hex_digits(raw, at + 8) : std::nullopt;
  return second && is_low_half(*second) ? 12 : 0;
}

std::string_view decode_json_string(std::string_view raw, std::deque<std::string>& memory) {
  if (raw.find('\\') == raw.npos) return raw;
  std::string text;
  text.reserve(raw.size());
  for (std::size_t at = 0; at < raw.size();) {
    if (raw[at] != '\\') {
      text += raw[at++];
      continue;
    }
    const char c = raw[at + 1];  // a string never ends with a lone backslash
    if (c == 'u') {
      text::append_utf8(decode_unicode_escape(raw, at), text);
      continue;
    }
    constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t which = kEscapes.find(c);
    if (which == kEscapes.npos) raise<DataError>("not valid JSON: the unknown escape \\{}", c);
    text += kMeanings[which];
    at += 2;
  }
  return memory.emplace_back(std::move(text));
}

}  // namespace tandem::data
