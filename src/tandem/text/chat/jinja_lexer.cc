#include "tandem/text/chat/jinja_lexer.h"

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::text {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t count_lines(std::string_view text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Cutter {
 public:
  explicit Cutter(std::string_view source) : source_(source) {
    if (source_.ends_with('\n')) source_.remove_suffix(1);  // keep_trailing_newline is false
  }

  std::vector<JinjaPart> cut() {
    while (at_ < source_.size()) {
      const std::size_t tag = next_tag();
      add_text(source_.substr(at_, tag - at_), tag);
      if (tag == source_.size()) break;
      at_ = tag;
      read_tag();
    }
    return std::move(parts_);
  }

 private:
  std::size_t next_tag() const {
    for (std::size_t at = source_.find('{', at_); at != source_.npos;
         at = source_.find('{', at + 1))
      if (at + 1 < source_.size() && std::string_view("{%#").find(source_[at + 1]) != kNone)
        return at;
    return source_.size();
  }

  void add_text(std::string_view text, std::size_t tag) {
    const std::size_t line = line_;
    line_ += count_lines(text);
    if (strips_next_) text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (tag < source_.size()) {
      const char mark = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      if (mark == '-') {
        text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
      } else if (source_[tag + 1] != '{' && mark != '+') {
        text = without_indentation(text);
      }
    }
    if (!text.empty()) parts_.push_back({JinjaPart::Kind::kText, std::string(text), line});
  }

  // lstrip_blocks: the blanks between the begin of a line and a statement.
  std::string_view without_indentation(std::string_view text) const {
    const std::size_t line = text.rfind('\n') + 1;  // 0 without a line break
    if (line == 0 && !line_starts_) return text;
    if (text.find_first_not_of(kBlanks, line) != text.npos) return text;
    return text.substr(0, line);
  }

  void read_tag() {
    const char kind = source_[at_ + 1];
    const std::size_t begin = at_ + 2;
    const std::size_t end = kind == '#' ? source_.find("#}", begin) : end_of_tag(begin, kind);
    if (end >= source_.size()) raise<DataError>("line {}: the tag '{{{}' has no end", line_, kind);
    std::string_view inside = source_.substr(begin, end - begin);
    const std::size_t line = line_;
    line_ += count_lines(inside);
    at_ = end + 2;
    const bool strips = inside.ends_with('-'), keeps = inside.ends_with('+');
    if (strips || keeps) inside.remove_suffix(1);
    if (inside.starts_with('-') || inside.starts_with('+')) inside.remove_prefix(1);
    if (kind != '#') {
      parts_.push_back({kind == '{' ? JinjaPart::Kind::kOutput : JinjaPart::Kind::kStatement,
                        std::string(inside), line});
    }
    strips_next_ = strips;
    line_starts_ = false;
    // trim_blocks: the line break behind a statement.
    if (kind != '{' && !strips && !keeps && source_.substr(at_).starts_with('\n')) {
      ++at_;
      ++line_;
      line_starts_ = true;
    }
  }

  // The end of a tag outside of its strings and brackets.
  std::size_t end_of_tag(std::size_t at, char kind) const {
    const std::string_view end = kind == '{' ? "}}" : "%}";
    for (int depth = 0; at < source_.size(); ++at) {
      const char c = source_[at];
      if (depth == 0 && source_.substr(at).starts_with(end)) return at;
      if (c == '\'' || c == '"') {
        for (++at; at < source_.size() && source_[at] != c; ++at) at += source_[at] == '\\';
      } else if (c == '{' || c == '[' || c == '(') {
        ++depth;
      } else if (c == '}' || c == ']' || c == ')') {
        --depth;
      }
    }
    return source_.size();
  }

  static constexpr std::size_t kNone = std::string_view::npos;

  std::string_view source_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  bool strips_next_ = false;  // the text behind a tag that ends in -
  bool line_starts_ = true;   // the text behind the last tag begins a line
  std::vector<JinjaPart> parts_;
};

char escaped(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    default:
      return c;
  }
}

}  // namespace

std::vector<JinjaPart> cut_jinja(std::string_view source) { return Cutter(source).cut(); }

std::vector<JinjaWord> cut_jinja_tag(std::string_view tag, std::size_t line) {
  using Kind = JinjaWord::Kind;
  std::vector<JinjaWord> words;
  for (std::size_t at = 0; at < tag.size();) {
    const char c = tag[at];
    const std::size_t here = line + count_lines(tag.substr(0, at));
    if (kBlanks.find(c) != kBlanks.npos) {
      ++at;
    } else if (c == '\'' || c == '"') {
      std::string value;
      for (++at; at < tag.size() && tag[at] != c; ++at) {
        if (tag[at] != '\\') {
          value += tag[at];
        } else if (++at < tag.size()) {
          value += escaped(tag[at]);
        }
      }
      ++at;
      words.push_back({Kind::kString, std::move(value), here});
    } else if (is_name(c)) {
      std::size_t end = at;
      while (end < tag.size() &&
             (is_name(tag[end]) ||
              (is_digit(c) && tag[end] == '.' && end + 1 < tag.size() && is_digit(tag[end + 1]))))
        ++end;
      words.push_back(
          {is_digit(c) ? Kind::kNumber : Kind::kName, std::string(tag.substr(at, end - at)), here});
      at = end;
    } else {
      static constexpr std::string_view kLong[] = {"==", "!=", "<=", ">=", "//", "**"};
      const auto longer = std::find(std::begin(kLong), std::end(kLong), tag.substr(at, 2));
      const std::size_t size = longer != std::end(kLong) ? 2 : 1;
      if (size == 1 && std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos)
        raise<DataError>("line {}: found '{}', expected an expression of Jinja", here, c);
      words.push_back({Kind::kOperator, std::string(tag.substr(at, size)), here});
      at += size;
    }
  }
  words.push_back({Kind::kEnd, "", line + count_lines(tag)});
  return words;
}

}  // namespace tandem::text
