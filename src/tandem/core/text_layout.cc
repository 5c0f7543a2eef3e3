#include "tandem/core/text_layout.h"

#include <algorithm>

namespace tandem {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// The byte at which character number `index` begins, or the end.
std::size_t byte_of(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (begins_character(text[at]) && index-- == 0) break;
  }
  return at;
}

}  // namespace

std::size_t text_columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string keep_end(std::string_view text, std::size_t columns) {
  const std::size_t all = text_columns(text);
  if (all <= columns) return std::string(text);
  if (columns == 0) return "";
  std::string kept = "…";
  return kept.append(text.substr(byte_of(text, all - (columns - 1))));
}

std::string keep_begin(std::string_view text, std::size_t columns) {
  if (text_columns(text) <= columns) return std::string(text);
  if (columns == 0) return "";
  return std::string(text.substr(0, byte_of(text, columns - 1))) + "…";
}

std::string wrapped(std::string_view text, std::size_t first, std::size_t indent,
                    std::size_t columns) {
  std::string lines;
  std::size_t column = first;
  bool begins_line = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    const std::size_t width = text_columns(word);
    if (!begins_line && column + 1 + width > columns) {
      lines.append("\n").append(indent, ' ');
      column = indent;
      begins_line = true;
    }
    lines.append(begins_line ? "" : " ").append(word);
    column += width + (begins_line ? 0 : 1);
    begins_line = false;
    if (end < text.size() && text[end] == '\n') {
      lines.append("\n").append(indent, ' ');
      column = indent;
      begins_line = true;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string printable(std::string text, bool lines) {
  for (char& c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (control && !(lines && c == '\n')) c = '?';
  }
  return text;
}

}  // namespace tandem
