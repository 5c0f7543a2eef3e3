// Text of ASCII, whatever the locale.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// `text` with A to Z as a to z; other bytes stay.
std::string ascii_lower(std::string_view text);

// The parts of `text` between separators, empty ones too: at least one. They are views of `text`,
// which must outlive them.
std::vector<std::string_view> split(std::string_view text, char separator);
std::vector<std::string_view> split(std::string&& text, char separator) = delete;
// The names of a list with commas between them; empty ones do not count.
std::vector<std::string> names_of_list(std::string_view list);

}  // namespace tandem
