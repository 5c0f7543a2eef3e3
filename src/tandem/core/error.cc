#include "tandem/core/error.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace tandem {

IoError io_error(std::string_view what, std::string_view path, int error_number) {
  return IoError(fmt::format("{} '{}': {}", what, path, std::strerror(error_number)));
}

namespace internal {

void check_failed(std::string_view condition, std::string_view message, const char* file, int line,
                  const char* function) {
  const std::string text =
      fmt::format("tandem: internal error (please report it): {} failed at {}:{} in {}{}{}\n",
                  condition, file, line, function, message.empty() ? "" : ": ", message);
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  _exit(70);
}

}  // namespace internal
}  // namespace tandem
