#include "apps/command/log_prefix.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/command/error_text.h"

namespace tandem::apps {
namespace {

std::string line_of(const LogPrefix& log_prefix, std::string_view text, std::string_view severity) {
  if (log_prefix.format == LogFormat::kJson)
    return json_log_line({severity, log_prefix.name, text, log_prefix.rank});
  if (severity == "ERROR") return error_text(text, error_columns());
  return fmt::format("{}: {}\n", log_prefix.name, text);
}

}  // namespace

void write_log(const LogPrefix& log_prefix, std::string_view text, std::string_view severity) {
  const std::string line = line_of(log_prefix, text, severity);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tandem::apps
