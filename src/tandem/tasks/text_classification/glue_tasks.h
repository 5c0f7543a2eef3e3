// The nine tasks of GLUE (Wang et al. 2019), as the data set nyu-mll/glue has them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::text_classification {

inline constexpr std::string_view kGlueDataset = "nyu-mll/glue";

// Metrics of an evaluation.
enum class MetricSet {
  kAccuracy,
  kAccuracyAndF1,
  kBinaryF1,
  kMatthews,
  kCorrelations,
  kMicroF1,
  kMse
};

struct GlueTask {
  std::string_view name;
  std::string_view first_column;
  std::string_view second_column;        // empty: single sentences
  std::vector<std::string_view> labels;  // by id; none: regression
  MetricSet metrics = MetricSet::kAccuracy;
};

std::span<const GlueTask> glue_tasks();
// Null if no task has this name, in lower case.
const GlueTask* find_glue_task(std::string_view name);

}  // namespace tandem::text_classification
