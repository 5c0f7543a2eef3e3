#include "apps/command/error_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "apps/command/terminal.h"
#include "tandem/core/text_layout.h"

namespace tandem::apps {

std::string error_text(std::string_view message, std::optional<std::size_t> columns) {
  const std::string text = fmt::format("tandem: error: {}", message);
  return (columns ? wrapped(text, 0, 2, *columns) : text) + "\n";
}

std::optional<std::size_t> error_columns() {
  if (::isatty(STDERR_FILENO) != 1) return std::nullopt;
  return fold_columns(STDERR_FILENO);
}

void print_error(std::string_view message) {
  const std::string text = error_text(message, error_columns());
  std::fputs(text.c_str(), stderr);  // at once, so that ranks do not mix their words
}

}  // namespace tandem::apps
