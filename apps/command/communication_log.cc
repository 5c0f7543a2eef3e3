#include "apps/command/communication_log.h"

#include <utility>

#include "tandem/core/error.h"

namespace tandem::apps {

CommunicationLog communication_log(const Environment& environment) {
  const std::string level = environment.get("CCL_LOG_LEVEL").value_or("warn");
  if (level == "error") return CommunicationLog::kError;
  if (level == "warn") return CommunicationLog::kWarn;
  if (level == "info" || level == "debug" || level == "trace") return CommunicationLog::kInfo;
  raise<ConfigError>(
      "the environment variable CCL_LOG_LEVEL is '{}', expected error, warn, info, debug or trace",
      level);
}

std::function<void(const std::string& line)> log_printer(CommunicationLog level,
                                                         LogPrefix log_prefix) {
  if (level == CommunicationLog::kError) return {};
  return [log_prefix = std::move(log_prefix)](const std::string& line) {
    write_log(log_prefix, line);
  };
}

}  // namespace tandem::apps
