// The scores of a run: its leading metrics with their values and units.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tandem/report/run_record.h"

namespace tandem::report {

struct Score {
  std::string key;   // in the results: "eval_f1"
  std::string name;  // "F1", or "F1 (test)" where only a test set was scored
  tasks::LeadingMetric metric;
  double value = 0;  // value of the last evaluation, as the results have it; may be NaN
};

// The leading metrics that the results hold, the most important first. Where the record names none,
// as files of transformers do, the metrics of the official scripts are known by name.
std::vector<Score> scores_of(const RunRecord& run);

// A score by step, as svg_chart() draws it; the last evaluation, after training, is not in the log.
std::vector<Point> score_points(const RunRecord& run, const Score& score);

bool is_percentage(const tasks::LeadingMetric& metric);
// "85.96 %" with two decimals of a percentage; other numbers with four digits behind the point.
std::string score_text(const tasks::LeadingMetric& metric, double value, int decimals);

// The runs whose value of a score is the best one: more than one where several are equal, none
// without values. `values` has a NaN where a run has no such score.
std::vector<bool> best_runs(const tasks::LeadingMetric& metric, std::span<const double> values);

}  // namespace tandem::report
