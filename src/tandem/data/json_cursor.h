// JSON as Python's json module and pandas write it, read token by token: a reader takes the values
// that it wants and skips the others, whatever they hold.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace tandem::data {

// RFC 8259, and the words NaN, Infinity and -Infinity as values. Numbers of any size and strings
// with any escape pass; the range of a number and the halves of surrogate pairs are checked by the
// reader that wants the value. A view: the text must outlive the cursor. Every error is a DataError
// "not valid JSON: line 3, column 17 (byte 211): found X, expected Y".
class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text, std::size_t position = 0)
      : text_(text), position_(position) {}

  std::size_t position() const { return position_; }
  // The byte that the next token begins with; '\0' at the end of the text.
  char peek();
  bool at_end() {
    peek();
    return position_ == text_.size();
  }
  // Fails if another token follows.
  void require_end();
  // Consumes `c` if the next token is this one.
  bool take(char c);
  // Consumes `c`, which must be the next token.
  void require(char c);
  // Consumes a string; returns what lies between its quotes, with escapes as they are.
  std::string_view string();
  // Consumes a number, true, false, null, NaN, Infinity or -Infinity.
  std::string_view scalar();
  // Consumes a value of any type. Memory grows with its depth only.
  void skip();

  // Consumes an object. visit(key) gets each key with its escapes, and consumes the value.
  template <class Visit>
  void members(Visit&& visit) {
    require('{');
    if (take('}')) return;
    do {
      const std::string_view key = string();
      require(':');
      visit(key);
    } while (take(','));
    require('}');
  }

  // Consumes a list. visit() consumes an element.
  template <class Visit>
  void elements(Visit&& visit) {
    require('[');
    if (take(']')) return;
    do visit();
    while (take(','));
    require(']');
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const;

  std::string_view text_;
  std::size_t position_;
};

// The bytes at `position` that may belong to a number or a word of JSON.
std::string_view json_token(std::string_view text, std::size_t position);
// Whether JsonCursor::scalar() takes them.
bool is_json_scalar(std::string_view token);

// The bytes that the escape at raw[at], a backslash, has: 2, 6 or, for both halves of a surrogate
// pair, 12; 0 for one half.
std::size_t json_escape_length(std::string_view raw, std::size_t at);
// The decoded value of a JSON string. Without an escape that is `raw` itself, else a text in
// `memory`. Throws DataError for half of a surrogate pair, which Python writes and no UTF-8 text
// can hold.
std::string_view decode_json_string(std::string_view raw, std::deque<std::string>& memory);

}  // namespace tandem::data
