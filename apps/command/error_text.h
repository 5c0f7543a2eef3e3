// How errors look on standard error.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::apps {

// "tandem: error: …" with a line end, in lines of at most `columns`. Without columns (programs read
// it) in one piece, so that they find what they look for.
std::string error_text(std::string_view message, std::optional<std::size_t> columns);

// The columns of standard error for error_text().
std::optional<std::size_t> error_columns();

// Prints it to standard error; for processes without a log (log_prefix.h).
void print_error(std::string_view message);

}  // namespace tandem::apps
