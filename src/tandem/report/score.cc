#include "tandem/report/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>

namespace tandem::report {
namespace {

using nlohmann::ordered_json;
using tasks::LeadingMetric;
using tasks::MetricUnit;

// NaN where a metric has no value, which JSON writes as null.
std::optional<double> number_of(const ordered_json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

// The last value of a metric, over all stages.
std::optional<double> result(const RunRecord& run, std::string_view key) {
  std::optional<double> found;
  for (const auto& [split, metrics] : run.results) {
    const auto at = metrics.find(key);
    if (at == metrics.end()) continue;
    if (const auto number = number_of(*at)) found = number;
  }
  return found;
}

// The metrics of the official scripts. Those of SQuAD are percentages, its F1 included.
std::vector<LeadingMetric> known_metrics(const RunRecord& run) {
  const auto any_has = [&](std::initializer_list<const char*> keys) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const char* key) { return result(run, key).has_value(); });
  };
  const bool squad = any_has({"eval_exact_match", "eval_exact", "test_exact_match", "test_exact",
                              "predict_exact_match", "predict_exact"});
  const bool correlations = any_has({"eval_pearson", "test_pearson", "predict_pearson"});
  const MetricUnit of_f1 = squad ? MetricUnit::kPercent : MetricUnit::kFraction;
  const MetricUnit combined = correlations ? MetricUnit::kNumber : MetricUnit::kFraction;
  std::vector<LeadingMetric> metrics = {
      {"f1", "F1", of_f1},
      {"exact_match", "Exact match", MetricUnit::kPercent},
      {"exact", "Exact match", MetricUnit::kPercent},
      {"overall_f1", "F1", MetricUnit::kFraction},
      {"overall_precision", "Precision", MetricUnit::kFraction},
      {"overall_recall", "Recall", MetricUnit::kFraction},
      {"overall_accuracy", "Accuracy", MetricUnit::kFraction},
      {"precision", "Precision", MetricUnit::kFraction},
      {"recall", "Recall", MetricUnit::kFraction},
      {"accuracy", "Accuracy", MetricUnit::kFraction},
      {"accuracy_mm", "Accuracy (mm)", MetricUnit::kFraction},
      {"matthews_correlation", "Matthews correlation", MetricUnit::kNumber},
      {"pearson", "Pearson correlation", MetricUnit::kNumber},
      {"spearmanr", "Spearman correlation", MetricUnit::kNumber},
      {"combined_score", "Combined score", combined},
      {"mse", "Mean squared error", MetricUnit::kNumber, /*less_is_better=*/true}};
  metrics.push_back(tasks::evaluation_loss_metric());
  return metrics;
}

double shown_value(const LeadingMetric& metric, double value) {
  return metric.unit == MetricUnit::kFraction ? 100 * value : value;
}

}  // namespace

std::vector<Score> scores_of(const RunRecord& run) {
  const std::vector<LeadingMetric> metrics =
      run.scores.metrics.empty() ? known_metrics(run) : run.scores.metrics;
  std::vector<Score> scores;
  for (const auto& [prefix, remark] :
       {std::pair("eval_", ""), {"test_", " (test)"}, {"predict_", " (test)"}}) {
    for (const LeadingMetric& metric : metrics) {
      const std::string key = prefix + metric.key;
      if (const auto value = result(run, key))
        scores.push_back({key, metric.name + remark, metric, *value});
    }
    if (!scores.empty()) break;  // the test set leads only where nothing else was scored
  }
  return scores;
}

std::vector<Point> score_points(const RunRecord& run, const Score& score) {
  double last_step = run.log_history.empty() ? 0 : run.log_history.back().value("step", 0.0);
  if (!run.steps.empty())
    last_step = std::max(last_step, static_cast<double>(run.steps.back().step));
  std::vector<Point> points;
  for (Point point : points_of_log(run, score.key)) {
    point.y = shown_value(score.metric, point.y);
    points.push_back(point);
  }
  const bool drawn = !points.empty() && points.back().x == last_step;
  if (!drawn) points.push_back({last_step, shown_value(score.metric, score.value)});
  return points;
}

bool is_percentage(const LeadingMetric& metric) { return metric.unit != MetricUnit::kNumber; }

std::string score_text(const LeadingMetric& metric, double value, int decimals) {
  if (std::isnan(value)) return "NaN";
  if (is_percentage(metric)) return fmt::format("{:.{}f} %", shown_value(metric, value), decimals);
  return std::abs(value) < 1e4 ? fmt::format("{:.4f}", value) : fmt::format("{:.6g}", value);
}

std::vector<bool> best_runs(const LeadingMetric& metric, std::span<const double> values) {
  std::optional<double> best;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    if (!best || (metric.less_is_better ? value < *best : value > *best)) best = value;
  }
  std::vector<bool> is_best;
  for (const double value : values) is_best.push_back(best && value == *best);
  return is_best;
}

}  // namespace tandem::report
