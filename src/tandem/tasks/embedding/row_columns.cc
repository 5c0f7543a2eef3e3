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

// The name of the label's column; empty without labels.
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

// A number or a truth value; NaN for anything else.
double number_at(const formats::Column& column, std::size_t i) {
  if (column.is_null(i)) return std::nan("");
  if (column.kind == formats::Column::Kind::kNumber) return column.numbers[i];
  if (column.kind == formats::Column::Kind::kInteger || column.kind == formats::Column::Kind::kBool)
    return static_cast<double>(column.integers[i]);
  return std::nan("");
}

std::string_view kind_of_value(const formats::Column& column, std::size_t i) {
  if (column.is_null(i)) return "no value";
  return column.kind == formats::Column::Kind::kText ? "a text" : "another value";
}

struct Labels {
  std::size_t per_row = 0;
  std::vector<float> values;  // [rows, per_row]
};

// Labels of the first `count` rows: a number in each, or a list of equally many numbers.
Labels labels_in(const data::Rows& rows, const std::string& name, std::size_t count) {
  formats::Column column = *rows.find(name);
  if (rows.untyped()) data::infer_type(column);
  const bool lists = column.kind == formats::Column::Kind::kList;
  const formats::Column& numbers = lists ? column.children.at(0) : column;
  Labels labels{lists && count > 0 ? column.begins[1] - column.begins[0] : 1, {}};
  for (std::size_t row = 0; row < count; ++row) {
    const std::size_t begin = lists ? column.begins[row] : row;
    const std::size_t end = lists ? column.begins[row + 1] : row + 1;
    if (end - begin != labels.per_row || begin == end)
      raise<DataError>("{}: column \"{}\": found {} labels, expected {} as in the first row",
                       rows.location(row), name, end - begin,
                       std::max<std::size_t>(labels.per_row, 1));
    for (std::size_t i = begin; i < end; ++i) {
      const double value = number_at(numbers, i);
      if (!std::isfinite(value))
        raise<DataError>("{}: column \"{}\": found {}, expected a finite number as label",
                         rows.location(row), name, kind_of_value(numbers, i));
      labels.values.push_back(static_cast<float>(value));
    }
  }
  return labels;
}

// Adds the labels of the rows that are used.
void take_labels(RowColumns& found) {
  const std::span<const std::uint32_t> from = found.flat.rows;
  const std::size_t rows = from.empty()       ? found.count
                           : found.count == 0 ? 0
                                              : from[found.count - 1] + std::size_t{1};
  Labels labels = labels_in(found.rows, found.label, rows);
  found.labels_per_row = labels.per_row;
  if (from.empty()) {
    found.labels = std::move(labels.values);
    return;
  }
  for (const std::uint32_t row : from.first(found.count)) {
    const auto of_row = std::span(labels.values).subspan(row * labels.per_row, labels.per_row);
    found.labels.insert(found.labels.end(), of_row.begin(), of_row.end());
  }
}

// The names of the columns with texts; the others become left_out unless the choice names columns.
std::vector<std::string> choose_texts(const ColumnChoice& choice, RowColumns& found) {
  if (!choice.texts.empty()) return choice.texts;
  std::vector<std::string> names = flag_embedding_columns(found.rows);
  const bool all = names.empty();
  for (const formats::Column& column : found.rows.columns()) {
    if (column.name == found.label) continue;
    const bool is_text = column.kind == formats::Column::Kind::kText || is_text_list(column);
    if (all && is_text)
      names.push_back(column.name);
    else if (std::find(names.begin(), names.end(), column.name) == names.end())
      found.left_out.push_back(column.name);
  }
  return names;
}

void take_texts(std::span<const std::string> names, RowColumns& found) {
  const bool lists = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const formats::Column* column = found.rows.find(name);
    return column != nullptr && is_text_list(*column);
  });
  if (!lists) {
    for (const std::string& name : names) found.texts.push_back(&found.rows.texts(name));
    return;
  }
  found.flat = without_lists(found.rows, names, kMostNegatives);
  for (const formats::Column& column : found.flat.columns) found.texts.push_back(&column);
}

void check_texts(const RowColumns& found) {
  for (const formats::Column* column : found.texts) {
    for (std::size_t row = 0; row < found.count; ++row) {
      if (!column->is_null(row)) continue;
      raise<DataError>("{}: column \"{}\": found no value, expected a text", found.location(row),
                       column->name);
    }
  }
}

}  // namespace

LabelKind RowColumns::label_kind() const {
  if (!has_labels()) return LabelKind::kNone;
  if (labels_per_row > 1) return LabelKind::kMargins;
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
  if (found.has_labels()) take_labels(found);
  check_texts(found);
  found.warnings = row_warnings({.texts = found.texts,
                                 .count = found.count,
                                 .location = [&](std::size_t row) { return found.location(row); },
                                 .has_labels = found.has_labels()});
  if (found.flat.with_repeated > 0) {
    found.warnings.push_back(
        fmt::format("{}: {} rows have fewer negatives than others; their negatives are repeated",
                    found.rows.file(), found.flat.with_repeated));
  }
  return found;
}

}  // namespace tandem::tasks::embedding
