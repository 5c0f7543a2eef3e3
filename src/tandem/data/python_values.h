// Makes values of JSON that Python writes, and strict parsers refuse, ones that they accept.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tandem::data {

// Replaces in `text`, without moving a byte:
//   * NaN, Infinity, -Infinity and numbers that no 64 bits hold by a number with a fraction, so
//     that a reader of text or integers refuses it;
//   * halves of surrogate pairs by U+FFFD in values that are not read: those under a key that is
//     neither in `keys` nor one of the first three of its object.
// Everything else stays, also invalid JSON.
void replace_python_values(std::string& text, std::span<const std::string_view> keys);

}  // namespace tandem::data
