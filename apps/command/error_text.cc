#include "apps/command/error_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "tandem/core/text_layout.h"

namespace tandem::apps {

std::string error_text(std::string_view message, bool terminal) {
  const std::string text = fmt::format("tandem: error: {}", message);
  return (terminal ? wrapped(text, 0, 2) : text) + "\n";
}

void print_error(std::string_view message) {
  const std::string text = error_text(message, ::isatty(STDERR_FILENO) != 0);
  std::fputs(text.c_str(), stderr);  // at once, so that ranks do not mix their words
}

}  // namespace tandem::apps
