// Labels of a classifier: their kinds, names and ids.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/formats/table.h"
#include "tandem/tasks/text_classification/classification_arguments.h"
#include "tandem/tasks/text_classification/glue_tasks.h"

namespace tandem::text_classification {

// Meaning of a text's logits.
enum class Problem {
  kSingleLabel,  // one of the classes: softmax, cross-entropy
  kRegression,   // one number: squared error
  kMultiLabel,   // any of the classes: a sigmoid each
};

// As config.json names it.
std::string_view problem_type(Problem problem);

struct LabelSet {
  Problem problem = Problem::kSingleLabel;
  std::vector<std::string> names;           // by id; kRegression: none
  std::map<std::string, std::int32_t> ids;  // ids by the cell's text, label_text()
  bool of_bools = false;                    // names are True and False

  std::size_t num_outputs() const { return problem == Problem::kRegression ? 1 : names.size(); }
  // As config.json has them: run_glue writes truth values as JSON does.
  std::vector<std::string> config_names() const;
};

// A cell in Python's words: "17", "True", "positive"; nothing when it is null. `column` must not be
// a list.
std::optional<std::string> label_text(const formats::Column& column, std::size_t i);
// A number that stands for no label, as GLUE's test sets have.
bool is_no_label(const formats::Column& column, std::size_t i);

// Labels of single sentences, pairs or numbers as run_glue and run_classification order them:
// integers by value (run_glue) or as text (run_classification), texts by code point.
LabelSet collect_labels(Problem problem, std::span<const formats::Column* const> columns,
                        Script script);

// The labels of a GLUE task in the model's order where `of_model` has the same names, whatever
// their case; in the task's otherwise, and `differs` becomes true where the model had other names.
LabelSet glue_labels(const GlueTask& task, std::span<const std::string> of_model, bool& differs);

// Labels by the names that a trained model has.
LabelSet model_labels(Problem problem, std::span<const std::string> of_model);

}  // namespace tandem::text_classification
