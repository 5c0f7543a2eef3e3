#include "tandem/core/error.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "tandem/core/log_line.h"
#include "tandem/core/volume.h"

namespace tandem {

IoError io_error(std::string_view what, std::string_view path, int error_number) {
  const std::string message = fmt::format("{} '{}': {}{}", what, path, std::strerror(error_number),
                                          advice_on(error_number));
  if (means_volume_gone(error_number)) throw VolumeGone(message);
  return IoError(message);
}

namespace {
// The check may fail in any thread and at any depth: nothing is handed down to it.
std::atomic<bool> g_json{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
}  // namespace

void print_failed_checks_as_json() { g_json.store(true); }

namespace internal {

void check_failed(std::string_view condition, std::string_view message, const char* file, int line,
                  const char* function) {
  const std::string text =
      fmt::format("internal error (please report it): {} failed at {}:{} in {}{}{}", condition,
                  file, line, function, message.empty() ? "" : ": ", message);
  const std::string shown = g_json.load()
                                ? json_log_line({.severity = "ERROR", .message = text, .rank = {}})
                                : fmt::format("tandem: {}\n", text);
  std::fputs(shown.c_str(), stderr);
  std::fflush(stderr);
  _exit(70);
}

}  // namespace internal
}  // namespace tandem
