// The rows that the goldens of ../shared/data/golden/tasks were made of.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/test_support.h"
#include "tandem/tasks/text_classification/examples.h"
#include "tandem/tasks/text_classification/labels.h"

namespace tandem::text_classification::testing {

struct GoldenTask {
  std::string_view name;  // in the names of the goldens
  std::string_view file;  // below shared data's tasks/
  bool pairs;
};

inline void PrintTo(const GoldenTask& task, std::ostream* out) { *out << task.name; }

inline constexpr GoldenTask kGoldenTasks[] = {{"single", "sst2/train.csv", false},
                                              {"pair", "stsb_class/train.json", true},
                                              {"regression", "stsb/train.csv", true},
                                              {"multilabel", "wnut17_types/train.json", false}};

struct GoldenRows {
  LabelSet labels;
  ExampleSet examples;
};

// The first 64 rows; they have all labels of the file.
inline GoldenRows read_golden_rows(const GoldenTask& task) {
  ClassificationArguments arguments;
  arguments.script = task.name == "multilabel" ? Script::kClassification : Script::kGlue;
  ExampleReader reader(arguments);
  const std::vector<std::filesystem::path> files{tandem::testing::shared_data() / "tasks" /
                                                 task.file};
  RawExamples raw = reader.read(files, std::nullopt, "train", 64);
  const formats::Column* column = &raw.labels;
  GoldenRows rows;
  rows.labels = collect_labels(problem_of(raw, arguments), std::span(&column, 1), arguments.script);
  rows.examples = make_examples(std::move(raw), rows.labels, " ", task.pairs, true);
  return rows;
}

}  // namespace tandem::text_classification::testing
