// How errors look on standard error.
#pragma once

#include <string>
#include <string_view>

namespace tandem::apps {

// "tandem: error: …" with a line end. For a terminal in lines of at most kLineColumns; for programs
// as it is, so that they find what they look for.
std::string error_text(std::string_view message, bool terminal);

// Prints it to standard error; for whoever has no log (voice.h).
void print_error(std::string_view message);

}  // namespace tandem::apps
