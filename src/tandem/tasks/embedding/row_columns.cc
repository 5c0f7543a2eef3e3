#include "tandem/tasks/embedding/row_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"

namespace tandem::tasks::embedding {
namespace {

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

void check_texts(const RowColumns& found) {
  for (const data::Column* column : found.texts) {
    for (std::size_t row = 0; row < found.count; ++row) {
      if (!column->is_null(row)) continue;
      raise<DataError>("{}: column \"{}\": found no value, expected a text", found.rows.place(row),
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
  found.count = std::min(found.rows.size(), choice.most.value_or(found.rows.size()));
  found.label = label_name(found.rows, choice.label);
  if (found.has_labels()) found.labels = labels_in(found.rows, found.label, found.count);
  for (const std::string& name : choice.texts) found.texts.push_back(&found.rows.texts(name));
  if (choice.texts.empty()) {
    for (const data::Column& column : found.rows.columns()) {
      if (column.name == found.label) continue;
      if (column.kind == data::Column::Kind::kText)
        found.texts.push_back(&column);
      else
        found.left_out.push_back(column.name);
    }
  }
  if (found.texts.empty()) {
    raise<DataError>("{}: found no text column, expected at least one; the columns are {}",
                     found.rows.file(), fmt::join(found.rows.file_columns(), ", "));
  }
  check_texts(found);
  return found;
}

}  // namespace tandem::tasks::embedding
