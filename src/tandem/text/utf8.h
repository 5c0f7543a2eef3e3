// UTF-8 as tandem uses it: texts are std::string_view of valid UTF-8, positions in them are code
// points, as in Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::text {

// The byte position of the first byte that is not part of a well-formed UTF-8 sequence (no overlong
// forms, no surrogates, nothing above U+10FFFF), or nothing when all of `text` is valid.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// Decodes the code point that starts at text[at] and moves `at` behind it. Precondition: `at` is
// before the end and at the start of a code point. Where `text` is not UTF-8 (find_invalid_utf8()
// is the check, once, where a text enters the program) the code point means nothing, but nothing
// behind the end is read and `at` never passes it.
char32_t next_code_point(std::string_view text, std::size_t& at);

void append_utf8(char32_t code_point, std::string& out);

// Number of code points of a valid text: Python's len().
std::size_t count_code_points(std::string_view text);

// Code points [begin, end) of a valid text, clipped to its length: Python's text[begin:end] for 0
// <= begin.
std::string_view slice_code_points(std::string_view text, std::size_t begin, std::size_t end);

// Python's str.isspace() for one character: Unicode's White_Space and U+001C … U+001F.
bool is_python_space(char32_t code_point);

// Python's str.lstrip() and str.strip() without arguments. Bytes that are not UTF-8 are not spaces.
std::string_view lstrip(std::string_view text);
std::string_view strip(std::string_view text);

}  // namespace tandem::text
