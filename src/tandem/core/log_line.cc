#include "tandem/core/log_line.h"

#include <fmt/chrono.h>

#include <chrono>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

std::optional<LogFormat> format_of(std::string_view name) {
  if (name == kLogFormatNames[0]) return LogFormat::kText;
  if (name == kLogFormatNames[1]) return LogFormat::kJson;
  return std::nullopt;
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

}  // namespace

LogFormat log_format(const Environment& environment) {
  const auto value = environment.get("TANDEM_LOG_FORMAT");
  if (!value) return LogFormat::kText;
  if (const auto format = format_of(*value)) return *format;
  raise<ConfigError>("the environment variable TANDEM_LOG_FORMAT is '{}', expected text or json",
                     *value);
}

std::optional<LogFormat> find_log_format(std::span<const std::string> words) {
  std::optional<LogFormat> found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    for (const std::string_view name : {"--log_format", "--log-format"}) {
      if (!word.starts_with(name)) continue;
      const std::string_view rest = word.substr(name.size());
      std::optional<LogFormat> format;
      if (rest.starts_with('=')) format = format_of(rest.substr(1));
      if (rest.empty() && i + 1 < words.size()) format = format_of(words[i + 1]);
      if (format) found = format;
    }
  }
  return found;
}

std::string json_log_line(const LogLine& line) {
  return json_log_line(line, ordered_json::object());
}

std::string json_log_line(const LogLine& line, const ordered_json& more) {
  ordered_json object = {{"time", utc_now()}, {"severity", line.severity}, {"logger", line.logger}};
  if (line.rank) object["rank"] = *line.rank;
  object["message"] = line.message;
  object.update(more);
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

bool is_json_object(std::string_view text) {
  return text.starts_with('{') && text.ends_with('}') && ordered_json::accept(text);
}

}  // namespace tandem
