#include "tandem/tasks/text_classification/inspect.h"

#include <span>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/tasks/inspect_sequences.h"
#include "tandem/tasks/text_classification/examples.h"
#include "tandem/tasks/text_classification/glue_tasks.h"
#include "tandem/tasks/text_classification/labels.h"
#include "tandem/tasks/text_classification/text_features.h"

namespace tandem::text_classification {
namespace {

nlohmann::ordered_json label_of(const ExampleSet& examples, const LabelSet& labels, std::size_t i) {
  if (labels.problem == Problem::kSingleLabel) return examples.classes[i];
  if (labels.problem == Problem::kRegression) return examples.values[i];
  std::vector<int> cells(labels.num_outputs());
  for (const std::int32_t label : examples.classes_of(i))
    cells[static_cast<std::size_t>(label)] = 1;
  return cells;
}

LabelSet labels_of(const RawExamples& raw, const ClassificationArguments& arguments) {
  if (arguments.task_name) {
    bool differs = false;
    return glue_labels(*find_glue_task(*arguments.task_name), {}, differs);
  }
  const formats::Column* column = &raw.labels;
  return collect_labels(problem_of(raw, arguments), std::span(&column, 1), arguments.script);
}

}  // namespace

void inspect_features(const std::filesystem::path& file, const ClassificationArguments& arguments,
                      const text::Tokenizer& tokenizer, ThreadPool& threads, std::ostream& output) {
  const bool glue = arguments.script == Script::kGlue;
  if (arguments.task_name && find_glue_task(*arguments.task_name) == nullptr)
    raise<ConfigError>("--task_name {}: no task of GLUE", *arguments.task_name);
  RawExamples raw = ExampleReader(arguments).read(std::span(&file, 1), std::nullopt, "train",
                                                  arguments.max_train_samples);
  const LabelSet labels = labels_of(raw, arguments);
  const ExampleSet examples =
      make_examples(std::move(raw), labels, arguments.text_column_delimiter, glue,
                    /*need_labels=*/true);
  const TextFeatures features =
      build_text_features(tokenizer, examples.first, examples.second,
                          static_cast<std::size_t>(arguments.max_seq_length), threads,
                          [&](std::size_t i) { return examples.rows.location(examples.used[i]); });
  const auto add_label = [&](std::size_t i, nlohmann::ordered_json& line) {
    line["label"] = label_of(examples, labels, i);
  };
  tasks::inspect_sequences(glue ? "run_glue" : "run_classification", features, labels.names,
                           add_label, output);
}

}  // namespace tandem::text_classification
