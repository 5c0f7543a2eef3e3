// Rows of a .jsonl file of texts, as commands that take texts read them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::apps {

struct TextRow {
  std::optional<std::string> id;  // _id or id
  std::string text;               // behind the title, if the object has one
};

// Whether the lines of a file of this name are objects instead of texts. A compressed file counts
// by the name of its content.
bool has_text_rows(std::string_view path);

// Parses a line {"text": …}, perhaps with _id and title. Throws DataError.
TextRow parse_text_row(const std::string& line);

// Whether a text has white space alone.
bool is_blank(std::string_view text);

}  // namespace tandem::apps
