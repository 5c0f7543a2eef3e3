#include "tandem/tasks/embedding/row_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/tasks/embedding/row_checks.h"

namespace tandem::tasks::embedding {
namespace {

// One less than the default --train_group_size of FlagEmbedding.
constexpr std::size_t kMostNegatives = 7;

constexpr std::string_view kLabelNames[] = {"label", "labels", "score", "scores"};

// The name of the label's column; empty: there is none.
std::string label_name(const data::Rows& rows, const std::optional<std::string>& given) {
  const auto has = [&](std::string_view name) { return rows.find(name) != nullptr; };
  if (given) {
    if (has(*given)) return *given;
    raise<DataError>("{}: --label_column: found no column '{}', expected one of {}", rows.file(),
                     *given, fmt::join(rows.file_columns(), ", "));
  }
  const auto found = std::find_if(std::begin(kLabelNames), std::end(kLabelNames), has);
  return found == std::end(kLabelNames) ? "" : std::string(*found);
}

std::vector<float> labels_in(const data::Rows& rows, const std::string& name, std::size_t count) {
  data::Column column = *rows.find(name);
  if (rows.untyped()) data::infer_type(column);
  std::vector<float> labels;
  for (std::size_t row = 0; row < count; ++row) {
    double value = std::nan("");
    if (!column.is_null(row)) {
      if (column.kind == data::Column::Kind::kNumber) value = column.numbers[row];
      if (column.kind == data::Column::Kind::kInteger || column.kind == data::Column::Kind::kBool)
        value = static_cast<double>(column.integers[row]);
    }
    if (!std::isfinite(value)) {
      raise<DataError>("{}: column \"{}\": found {}, expected a finite number as label",
                       rows.place(row), name,
                       column.is_null(row)                        ? "no value"
                       : column.kind == data::Column::Kind::kText ? "a text"
                                                                  : "another value");
    }
    labels.push_back(static_cast<float>(value));
  }
  return labels;
}

// Labels of the rows that are used.
std::vector<float> labels_of(const RowColumns& found) {
  const std::span<const std::uint32_t> from = found.flat.rows;
  if (from.empty()) return labels_in(found.rows, found.label, found.count);
  const auto labels =
      labels_in(found.rows, found.label, found.count == 0 ? 0 : from[found.count - 1] + 1);
  std::vector<float> flat;
  for (const std::uint32_t row : from.first(found.count)) flat.push_back(labels[row]);
  return flat;
}

// The names of the columns with texts; the others become left_out unless the choice names columns.
std::vector<std::string> choose_texts(const ColumnChoice& choice, RowColumns& found) {
  if (!choice.texts.empty()) return choice.texts;
  std::vector<std::string> names = flag_embedding_columns(found.rows);
  const bool all = names.empty();
  for (const data::Column& column : found.rows.columns()) {
    if (column.name == found.label) continue;
    const bool is_text = column.kind == data::Column::Kind::kText || is_text_list(column);
    if (all && is_text)
      names.push_back(column.name);
    else if (std::find(names.begin(), names.end(), column.name) == names.end())
      found.left_out.push_back(column.name);
  }
  return names;
}

void take_texts(std::span<const std::string> names, RowColumns& found) {
  const bool lists = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const data::Column* column = found.rows.find(name);
    return column != nullptr && is_text_list(*column);
  });
  if (!lists) {
    for (const std::string& name : names) found.texts.push_back(&found.rows.texts(name));
    return;
  }
  found.flat = without_lists(found.rows, names, kMostNegatives);
  for (const data::Column& column : found.flat.columns) found.texts.push_back(&column);
}

void check_texts(const RowColumns& found) {
  for (const data::Column* column : found.texts) {
    for (std::size_t row = 0; row < found.count; ++row) {
      if (!column->is_null(row)) continue;
      raise<DataError>("{}: column \"{}\": found no value, expected a text", found.place(row),
                       column->name);
    }
  }
}

}  // namespace

LabelKind RowColumns::label_kind() const {
  if (!has_labels()) return LabelKind::kNone;
  const bool binary = std::all_of(labels.begin(), labels.end(),
                                  [](float value) { return value == 0 || value == 1; });
  return binary ? LabelKind::kBinary : LabelKind::kScore;
}

RowColumns read_columns(std::span<const std::filesystem::path> files, const ColumnChoice& choice) {
  RowColumns found;
  found.rows = data::read_rows(files);
  found.label = label_name(found.rows, choice.label);
  const std::vector<std::string> names = choose_texts(choice, found);
  if (names.empty()) {
    raise<DataError>("{}: found no text column, expected at least one; the columns are {}",
                     found.rows.file(), fmt::join(found.rows.file_columns(), ", "));
  }
  take_texts(names, found);
  found.count =
      std::min(found.texts.front()->size, choice.most.value_or(found.texts.front()->size));
  if (found.has_labels()) found.labels = labels_of(found);
  check_texts(found);
  found.warnings = row_warnings({.texts = found.texts,
                                 .count = found.count,
                                 .place = [&](std::size_t row) { return found.place(row); },
                                 .has_labels = found.has_labels()});
  if (found.flat.with_repeated > 0) {
    found.warnings.push_back(
        fmt::format("{}: {} rows have fewer negatives than others; their negatives are repeated",
                    found.rows.file(), found.flat.with_repeated));
  }
  return found;
}

}  // namespace tandem::tasks::embedding
