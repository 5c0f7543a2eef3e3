// report.html: a run on one page, without scripts and without anything from elsewhere.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tandem/report/chart.h"
#include "tandem/tasks/question_answering/mistakes.h"

namespace tandem::report {

using Fact = std::pair<std::string, std::string>;

struct RunRecord {
  std::string title;                                // run_name or output_dir
  std::vector<nlohmann::ordered_json> log_history;  // as trainer_state.json has it
  std::vector<Point> tokens_per_second;             // by step
  nlohmann::ordered_json settings;                  // {flag: value}
  std::vector<Fact> machine;                        // CPU, kernels, threads, ranks …
  std::vector<std::pair<std::string, nlohmann::ordered_json>>
      results;  // ("train", {metric: value}), ("eval", …)
  question_answering::Mistakes mistakes;
};

// Charts of loss, learning rate, gradient norm, tokens per second and the evaluations; results; wrong answers marked in their
// contexts; settings and machine. Everything that comes from data or flags is escaped, and a content security policy forbids scripts and requests
// besides.
std::string html_report(const RunRecord& run);

}  // namespace tandem::report
