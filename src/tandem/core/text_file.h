// Text files as editors write them: UTF-8, with or without a byte order mark.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tandem {

// Removes a UTF-8 byte order mark from the start of a text, or of the first line of one. Throws
// DataError if the text is UTF-16 or UTF-32: it starts with the mark of one, or with an ASCII
// character in its form. `name` begins the message: "story.txt", "standard input".
void remove_byte_order_mark(std::string& text, std::string_view name);

// read_file() without the byte order mark.
std::string read_text_file(const std::filesystem::path& path);

}  // namespace tandem
