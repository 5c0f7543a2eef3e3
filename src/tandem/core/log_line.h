// Lines of a log as the collectors of a cluster take them: one JSON object each.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tandem/core/enum_name.h"
#include "tandem/core/env.h"

namespace tandem {

enum class LogFormat { kText, kJson };
inline constexpr std::string_view kLogFormatNames[] = {"text", "json"};
inline EnumNames enum_names(LogFormat) { return kLogFormatNames; }

// TANDEM_LOG_FORMAT; text when it is not set. Throws ConfigError for another value.
LogFormat log_format(const Environment& environment);

// The last value of --log_format (or --log-format) in `words`. Nothing if the flag is absent or its
// value is invalid; the flag parser reports invalid values.
std::optional<LogFormat> find_log_format(std::span<const std::string> words);

struct LogLine {
  std::string_view severity = "INFO";  // INFO, WARNING or ERROR
  std::string_view logger = "tandem";  // the sender: script, trainer, run, hub …
  std::string_view message;  // may have several lines; bytes that are not UTF-8 are replaced
  std::optional<int> rank;
};

// {"time":"2026-11-24T16:20:00.123Z","severity":…,"logger":…,"rank":…,"message":…} and a newline.
std::string json_log_line(const LogLine& line);
// The same with the members of the object `more` behind them. Numbers that JSON has no word for
// become null.
std::string json_log_line(const LogLine& line, const nlohmann::ordered_json& more);

// From now on a failed TANDEM_CHECK (error.h) is reported as such a line. At the start of a
// process.
void print_failed_checks_as_json();

// Whether `text`, without its newline, is a JSON object already.
bool is_json_object(std::string_view text);

}  // namespace tandem
