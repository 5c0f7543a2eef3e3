// Text files as editors write them: UTF-8, with or without a byte order mark.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tandem {

// A text, or the first line of one, without the UTF-8 byte order mark at its start. Throws
// DataError if the text is UTF-16 or UTF-32: it starts with the mark of one, or with an ASCII
// character in its form. `name` begins the message: "story.txt", "standard input".
std::string_view without_byte_order_mark(std::string_view text, std::string_view name = "the text");

// The same in place.
void remove_byte_order_mark(std::string& text, std::string_view name);

// read_file() without the byte order mark.
std::string read_text_file(const std::filesystem::path& path);

}  // namespace tandem
