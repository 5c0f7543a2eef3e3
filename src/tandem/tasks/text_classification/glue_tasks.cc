#include "tandem/tasks/text_classification/glue_tasks.h"

#include <algorithm>

namespace tandem::text_classification {

std::span<const GlueTask> glue_tasks() {
  static const std::vector<GlueTask> kTasks = {
      {"cola", "sentence", "", {"unacceptable", "acceptable"}, MetricSet::kMatthews},
      {"mnli", "premise", "hypothesis", {"entailment", "neutral", "contradiction"}},
      {"mrpc",
       "sentence1",
       "sentence2",
       {"not_equivalent", "equivalent"},
       MetricSet::kAccuracyAndF1},
      {"qnli", "question", "sentence", {"entailment", "not_entailment"}},
      {"qqp", "question1", "question2", {"not_duplicate", "duplicate"}, MetricSet::kAccuracyAndF1},
      {"rte", "sentence1", "sentence2", {"entailment", "not_entailment"}},
      {"sst2", "sentence", "", {"negative", "positive"}},
      {"stsb", "sentence1", "sentence2", {}, MetricSet::kCorrelations},
      {"wnli", "sentence1", "sentence2", {"not_entailment", "entailment"}},
  };
  return kTasks;
}

const GlueTask* find_glue_task(std::string_view name) {
  const auto all = glue_tasks();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const GlueTask& task) { return task.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace tandem::text_classification
