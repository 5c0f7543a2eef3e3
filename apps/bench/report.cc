#include "apps/bench/report.h"

#include <fmt/format.h>

#include "tandem/core/error.h"

namespace tandem::apps::bench {

using nlohmann::ordered_json;

ordered_json to_json(const Statistics& statistics) {
  return {{"median", statistics.median}, {"min", statistics.min}, {"max", statistics.max}};
}

Report::Report(std::ostream& output, bool json, std::string_view bench, ordered_json machine)
    : output_(output), json_(json) {
  object_["bench"] = bench;
  for (const auto& [key, value] : machine.items()) {
    heading_ += fmt::format("{}{}: {}", heading_.empty() ? "" : "; ", key,
                            value.is_string() ? value.get<std::string>() : value.dump());
    object_[key] = value;
  }
  object_["results"] = ordered_json::array();
}

void Report::line(const std::string& text) {
  if (json_) return;
  if (!heading_.empty()) output_ << heading_ << '\n';
  heading_.clear();
  output_ << text << '\n';
}

void Report::finish() {
  if (results().empty()) {
    raise<ConfigError>("nothing was measured: no name contains the text of --only");
  }
  if (json_) output_ << object_.dump(2) << '\n';
  output_.flush();
}

}  // namespace tandem::apps::bench
