// JSON text exactly as Python's json.dumps writes it, so that files compare equal, byte for byte,
// with those of Python programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tandem {

// repr(value): the shortest digits that read back as `value`, "1e-05" and "1e+16" outside of [1e-4,
// 1e16), ".0" for whole numbers, "nan", "inf".
std::string python_repr(double value);

struct PythonJsonOptions {
  int indent = -1;  // spaces per level; −1: one line with ", " and ": "
  // By code point; where all keys of an object are numbers, by their value, as Python sorts int
  // keys (id2label).
  bool sort_keys = false;
  bool ensure_ascii = true;  // other characters as \uXXXX, beyond the BMP as surrogate pairs
};

// json.dumps(value, indent=…, sort_keys=…, ensure_ascii=…); floats by python_repr, except NaN,
// Infinity and -Infinity. No trailing newline. Strings must be valid UTF-8: throws InvalidArgument
// otherwise.
std::string python_json(const nlohmann::ordered_json& value, const PythonJsonOptions& options = {});

// As parse_ordered_json(), of a text that Python's json module wrote: NaN, Infinity and -Infinity
// outside of strings are numbers. Throws nlohmann::json::exception.
nlohmann::ordered_json parse_python_json(std::string_view text);

// The string `text` as a JSON string with its quotes.
std::string python_json_string(std::string_view text, bool ensure_ascii = true);

// The message of a parser without the mark of its library: "[json.exception.parse_error.101] parse
// error at line 1, …" -> "parse error at line 1, …".
std::string_view json_reason(std::string_view what);

}  // namespace tandem
