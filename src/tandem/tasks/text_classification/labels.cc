#include "tandem/tasks/text_classification/labels.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/core/ascii.h"
#include "tandem/core/error.h"
#include "tandem/core/python_json.h"
#include "tandem/tasks/label_config.h"

namespace tandem::text_classification {
namespace {

using formats::Column;

void number_names(LabelSet& labels) {
  for (std::size_t i = 0; i < labels.names.size(); ++i)
    labels.ids.emplace(labels.names[i], static_cast<std::int32_t>(i));
}

}  // namespace

std::string_view problem_type(Problem problem) {
  switch (problem) {
    case Problem::kSingleLabel:
      return "single_label_classification";
    case Problem::kRegression:
      return "regression";
    case Problem::kMultiLabel:
      return "multi_label_classification";
  }
  return "";
}

std::vector<std::string> LabelSet::config_names() const {
  if (problem == Problem::kRegression) return {"LABEL_0"};
  if (!of_bools) return names;
  std::vector<std::string> lowered;
  for (const std::string& name : names) lowered.push_back(ascii_lower(name));
  return lowered;
}

std::optional<std::string> label_text(const Column& column, std::size_t i) {
  if (column.is_null(i)) return std::nullopt;
  switch (column.kind) {
    case Column::Kind::kText:
      return std::string(column.texts[i]);
    case Column::Kind::kInteger:
      return std::to_string(column.integers[i]);
    case Column::Kind::kBool:
      return column.integers[i] != 0 ? "True" : "False";
    case Column::Kind::kNumber:
      return python_repr(column.numbers[i]);
    default:
      return std::nullopt;
  }
}

bool is_no_label(const Column& column, std::size_t i) {
  if (column.kind == Column::Kind::kInteger) return column.integers[i] == -1;
  return column.kind == Column::Kind::kNumber && column.numbers[i] == -1;
}

LabelSet collect_labels(Problem problem, std::span<const Column* const> columns, Script script) {
  LabelSet labels;
  labels.problem = problem;
  if (problem == Problem::kRegression) return labels;
  bool all_integers = true;
  labels.of_bools = script == Script::kGlue;
  for (const Column* column : columns) {
    const Column& cells = problem == Problem::kMultiLabel ? column->children.front() : *column;
    all_integers &= cells.kind == Column::Kind::kInteger;
    labels.of_bools &= cells.kind == Column::Kind::kBool;
    for (std::size_t i = 0; i < cells.size; ++i) {
      const auto text = label_text(cells, i);
      if (text && !is_no_label(cells, i)) labels.ids.emplace(*text, 0);
    }
  }
  for (const auto& [text, id] : labels.ids) labels.names.push_back(text);  // by code point
  if (script == Script::kGlue && all_integers) {
    std::sort(labels.names.begin(), labels.names.end(),
              [](const auto& a, const auto& b) { return std::stoll(a) < std::stoll(b); });
  }
  labels.ids.clear();
  number_names(labels);
  return labels;
}

LabelSet glue_labels(const GlueTask& task, std::span<const std::string> of_model, bool& differs) {
  LabelSet labels;
  differs = false;
  if (task.labels.empty()) {
    labels.problem = Problem::kRegression;
    return labels;
  }
  std::vector<std::string> of_task(task.labels.begin(), task.labels.end());
  std::vector<std::string> lowered;
  for (const std::string& name : of_model) lowered.push_back(ascii_lower(name));
  const bool same =
      std::is_permutation(lowered.begin(), lowered.end(), of_task.begin(), of_task.end());
  differs = !same && !tasks::are_default_names(of_model);
  labels.names = of_task;
  if (same) labels.names.assign(of_model.begin(), of_model.end());
  for (std::size_t i = 0; i < of_task.size(); ++i) {
    const auto index = same
                           ? std::find(lowered.begin(), lowered.end(), of_task[i]) - lowered.begin()
                           : static_cast<std::ptrdiff_t>(i);
    labels.ids[std::to_string(i)] = static_cast<std::int32_t>(index);
    labels.ids[of_task[i]] = static_cast<std::int32_t>(index);
  }
  return labels;
}

LabelSet model_labels(Problem problem, std::span<const std::string> of_model) {
  LabelSet labels;
  labels.problem = problem;
  if (problem == Problem::kRegression) return labels;
  labels.names.assign(of_model.begin(), of_model.end());
  number_names(labels);
  if (tasks::are_default_names(of_model)) {
    for (std::size_t i = 0; i < of_model.size(); ++i)
      labels.ids.emplace(std::to_string(i), static_cast<std::int32_t>(i));
  }
  return labels;
}

}  // namespace tandem::text_classification
