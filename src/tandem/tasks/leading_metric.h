// Which metrics of an evaluation lead in a report, and how a report shows them.
#pragma once

#include <string>
#include <vector>

namespace tandem::tasks {

enum class MetricUnit {
  kFraction,  // from 0 to 1, shown as a percentage
  kPercent,   // from 0 to 100
  kNumber,    // shown as it is
};

struct LeadingMetric {
  std::string key;   // in the results of an evaluation, without the prefix of the split: "f1"
  std::string name;  // for people: "F1"
  MetricUnit unit = MetricUnit::kNumber;
  bool less_is_better = false;
};

struct LeadingMetrics {
  std::vector<LeadingMetric> metrics;  // the most important first
  std::string training_loss = "mean cross-entropy (nat)";
};

// eval_loss of the tasks that have it.
inline LeadingMetric evaluation_loss_metric() {
  return {"loss", "Evaluation loss", MetricUnit::kNumber, /*less_is_better=*/true};
}

}  // namespace tandem::tasks
