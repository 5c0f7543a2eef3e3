// The scores of text classification, equal to those of the packages that the scripts use
// (evaluate's glue, accuracy, f1 and mse over scikit-learn and scipy).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/tasks/leading_metric.h"
#include "tandem/tasks/text_classification/glue_tasks.h"

namespace tandem::text_classification {

// Names and values in the order of the script's result.
using Metrics = std::vector<std::pair<std::string, double>>;

// Names of what a set measures, in that order.
std::vector<std::string> metric_names(MetricSet set);

// The same with the names and units for people.
std::vector<tasks::LeadingMetric> reported_metrics(MetricSet set);

// kAccuracy, kAccuracyAndF1, kBinaryF1, kMatthews. Accuracy: the share of equal ids. F1: of class
// 1; 0 when nothing is predicted and nothing right. Matthews correlation: 0 when a side has one
// class only.
Metrics class_metrics(MetricSet set, std::span<const std::int32_t> predictions,
                      std::span<const std::int32_t> labels);

// kCorrelations: Pearson's in f32, as numpy computes it on f32 arrays; Spearman's in f64 over
// average ranks; NaN when a side is constant. kMse: the mean squared error in f64.
Metrics value_metrics(MetricSet set, std::span<const float> predictions,
                      std::span<const float> labels);

// Counts of a table of texts and labels of which several may be right, taken text by text: the
// table itself may be too large to keep.
struct CellCounts {
  std::size_t texts = 0, equal_texts = 0;  // equal: in every cell
  std::size_t right = 0, predicted = 0, labelled = 0;

  // A label is predicted where its logit is above 0; `labels`: the right ones, each once.
  void add(std::span<const float> logits, std::span<const std::int32_t> labels);
};

// kMicroF1: over all cells; 0 when nothing is predicted and nothing true. kAccuracy: the share of
// texts that are equal in every cell.
Metrics cell_metrics(MetricSet set, const CellCounts& counts);

// The first of equal maxima.
std::int32_t argmax(std::span<const float> logits);

}  // namespace tandem::text_classification
