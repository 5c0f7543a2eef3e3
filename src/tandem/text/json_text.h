// Where a JSON text is broken, for error messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::text {

// "line 3, column 17 (byte 211)" for a byte position; lines and columns count from 1, columns in
// bytes.
std::string describe_position(std::string_view text, std::size_t byte);

// The fault in the part [begin, end) of `text` as one JSON value, and its position in `text`: "line
// 3, column 17 (byte 211): syntax error while parsing object - …". An empty string if it is
// well-formed. Slow: for use after a fast parser refused it.
std::string describe_json_error(std::string_view text, std::size_t begin = 0,
                                std::size_t end = std::string_view::npos);

}  // namespace tandem::text
