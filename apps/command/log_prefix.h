// Prefix of a process's log lines outside a job's console: errors, and actions of its launcher.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tandem/core/log_line.h"

namespace tandem::apps {

struct LogPrefix {
  LogFormat format = LogFormat::kText;
  std::string name = "tandem";  // stands in front of a text; the logger of a JSON line
  std::optional<int> rank;
};

// "tandem: text", "tandem: error: text" (error_text.h), or a JSON line, in one write to standard
// error, so that ranks do not mix their words.
void write_log(const LogPrefix& log_prefix, std::string_view text,
               std::string_view severity = "INFO");

}  // namespace tandem::apps
