// The record of a run that report.html shows and report.json stores, so that runs can be compared
// later.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/json.h"
#include "tandem/report/chart.h"
#include "tandem/tasks/analysis.h"
#include "tandem/tasks/leading_metric.h"
#include "tandem/trainer/step_history.h"

namespace tandem::report {

using Fact = std::pair<std::string, std::string>;

struct RunRecord {
  std::string title;                                // run_name or output_dir
  std::vector<Fact> headline;                       // task, model, data, date, command …
  std::vector<nlohmann::ordered_json> log_history;  // as trainer_state.json has it
  std::vector<trainer::StepPoint> steps;            // thinned where there are many
  std::vector<Point> tokens_per_second;             // by step
  nlohmann::ordered_json settings;                  // {flag: value}
  std::vector<Fact> machine;                        // CPU, kernels, threads, ranks …
  std::vector<std::pair<std::string, nlohmann::ordered_json>>
      results;                              // ("train", {metric: value}), ("eval", …)
  tasks::LeadingMetrics scores;             // scores of the task
  std::optional<tasks::Analysis> analysis;  // of the task; not kept in report.json
};

// The points of one key of the log, by step.
std::vector<Point> points_of_log(const RunRecord& run, const std::string& key);

// The text of report.json. NaN becomes null.
std::string to_json(const RunRecord& run);

// Reads report.json of a run's output_dir; without one what the Trainer of transformers leaves
// there (trainer_state.json and all_results.json). Throws IoError and DataError.
RunRecord read_run(const std::filesystem::path& output_dir);

}  // namespace tandem::report
