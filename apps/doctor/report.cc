#include "apps/doctor/report.h"

#include <fmt/format.h>

#include "tandem/core/json.h"

namespace tandem::apps::doctor {

void Report::fact(std::string_view topic, std::string text) {
  lines_.push_back({std::string(topic), "fact", std::move(text)});
}

void Report::note(std::string_view topic, std::string text) {
  lines_.push_back({std::string(topic), "note", std::move(text)});
}

void Report::problem(std::string_view topic, std::string text, std::string fix) {
  problems_.push_back({std::string(topic), std::move(text), std::move(fix)});
}

std::string Report::text() const {
  std::string text;
  for (const Line& line : lines_) {
    text +=
        fmt::format("{:<14} {}{}\n", line.topic, line.level == "note" ? "note: " : "", line.text);
  }
  for (const Problem& problem : problems_) {
    text += fmt::format("problem: {}: {}; fix: {}\n", problem.topic, problem.text, problem.fix);
  }
  if (healthy()) return text + "tandem doctor: no problems found\n";
  return text + fmt::format("tandem doctor: {} problem{}\n", problems_.size(),
                            problems_.size() == 1 ? "" : "s");
}

std::string Report::json() const {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Line& line : lines_) {
    findings.push_back({{"topic", line.topic}, {"level", line.level}, {"text", line.text}});
  }
  nlohmann::ordered_json problems = nlohmann::ordered_json::array();
  for (const Problem& problem : problems_) {
    problems.push_back({{"topic", problem.topic}, {"problem", problem.text}, {"fix", problem.fix}});
  }
  const nlohmann::ordered_json all = {
      {"findings", findings}, {"problems", problems}, {"healthy", healthy()}};
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tandem::apps::doctor
