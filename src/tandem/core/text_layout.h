// Text in the columns of a terminal. Every character counts as one column.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::size_t kLineColumns = 100;  // columns of text that is printed for people

// The columns that UTF-8 text takes.
std::size_t text_columns(std::string_view text);

// At most `columns` columns of the end of a text, "…" before it when something is missing: the end
// of a path is its most important part.
std::string keep_end(std::string_view text, std::size_t columns);

// The beginning likewise.
std::string keep_begin(std::string_view text, std::size_t columns);

// The text in lines of at most `columns`, broken at spaces; a word that is longer (a path) stays
// whole. The first line begins in column `first`, the others are indented by `indent`. Line ends of
// the text stay.
std::string wrapped(std::string_view text, std::size_t first, std::size_t indent,
                    std::size_t columns = kLineColumns);

// Text from other processes made safe for a terminal: a '?' for each control character. `lines`:
// ends of lines stay.
std::string printable(std::string text, bool lines = false);

}  // namespace tandem
