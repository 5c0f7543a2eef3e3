#include "apps/command/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "tandem/core/env.h"
#include "tandem/core/text_layout.h"

namespace tandem::apps {
namespace {

constexpr int kColumnsUnknown = 80;
constexpr std::size_t kFewestColumns =
    40;  // below, folded text is harder to read than broken lines

}  // namespace

std::optional<int> terminal_columns(int descriptor) {
  if (::isatty(descriptor) != 1) return std::nullopt;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kColumnsUnknown;
}

std::size_t fold_columns(int descriptor) {
  const std::optional<int> columns = terminal_columns(descriptor);
  if (!columns) return kLineColumns;
  return std::clamp(static_cast<std::size_t>(*columns), kFewestColumns, kLineColumns);
}

bool takes_escapes(int descriptor) {
  return ::isatty(descriptor) == 1 && Environment::from_process().get("TERM") != "dumb";
}

}  // namespace tandem::apps
