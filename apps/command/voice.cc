#include "apps/command/voice.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/command/error_text.h"

namespace tandem::apps {
namespace {

std::string line_of(const Voice& voice, std::string_view text, std::string_view severity) {
  if (voice.format == LogFormat::kJson)
    return json_log_line({severity, voice.name, text, voice.rank});
  if (severity == "ERROR") return error_text(text, error_columns());
  return fmt::format("{}: {}\n", voice.name, text);
}

}  // namespace

void say(const Voice& voice, std::string_view text, std::string_view severity) {
  const std::string line = line_of(voice, text, severity);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tandem::apps
