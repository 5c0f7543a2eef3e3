#include "tandem/tasks/text_classification/examples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tandem/core/error.h"
#include "tandem/tasks/text_classification/numpy_permutation.h"

namespace tandem::text_classification {
namespace {

using formats::Column;

bool has(std::span<const std::string> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string known_labels(const LabelSet& labels) {
  constexpr std::size_t kShown = 20;
  const std::size_t count = std::min(kShown, labels.names.size());
  return fmt::format("{}{}",
                     fmt::join(labels.names.begin(),
                               labels.names.begin() + static_cast<std::ptrdiff_t>(count), ", "),
                     labels.names.size() > kShown ? ", …" : "");
}

// Gives labels to the examples of a set.
class Labeller {
 public:
  Labeller(const RawExamples& raw, const LabelSet& labels, ExampleSet& set)
      : raw_(raw), labels_(labels), set_(set) {}

  void run(bool required) {
    if (!required && !any()) return;
    for (const std::uint32_t row : raw_.used) {
      switch (labels_.problem) {
        case Problem::kSingleLabel:
          set_.classes.push_back(id_of(raw_.labels, row, row));
          break;
        case Problem::kRegression:
          set_.values.push_back(static_cast<float>(number(row)));
          break;
        case Problem::kMultiLabel:
          add_cells(row);
      }
    }
  }

 private:
  // Whether rows have labels: -1 and nothing are none.
  bool any() const {
    return raw_.labels.kind != Column::Kind::kOther &&
           std::any_of(raw_.used.begin(), raw_.used.end(), [&](std::uint32_t row) {
             return !raw_.labels.is_null(row) && !is_no_label(raw_.labels, row);
           });
  }

  template <class... Args>
  [[noreturn]] void fail(std::size_t row, fmt::format_string<Args...> format,
                         Args&&... args) const {
    raise<DataError>("{}: {}", raw_.rows.location(row),
                     fmt::format(format, std::forward<Args>(args)...));
  }

  std::int32_t id_of(const Column& cells, std::size_t cell, std::size_t row) const {
    const auto text = label_text(cells, cell);
    if (!text) fail(row, "the label is missing");
    auto found = labels_.ids.find(*text);
    // One fraction makes numbers of all cells of a column: 1.0 is the class 1, as in Python.
    if (found == labels_.ids.end() && cells.kind == Column::Kind::kNumber && text->ends_with(".0"))
      found = labels_.ids.find(text->substr(0, text->size() - 2));
    if (found != labels_.ids.end()) return found->second;
    if (is_no_label(cells, cell))
      fail(row, "the label -1 stands for no label; expected one of {}", known_labels(labels_));
    if (cells.kind == Column::Kind::kNumber)
      fail(row, "the label {} is a number, but a class is needed: {}", *text,
           known_labels(labels_));
    fail(row, "the label '{}' is not known; expected one of {}", *text, known_labels(labels_));
  }

  double number(std::size_t row) const {
    const Column& cells = raw_.labels;
    if (cells.is_null(row)) fail(row, "the label is missing");
    if (cells.kind == Column::Kind::kNumber) return cells.numbers[row];
    if (cells.kind == Column::Kind::kInteger) return static_cast<double>(cells.integers[row]);
    fail(row, "the label '{}' is not a number, which regression needs",
         label_text(cells, row).value_or(""));
  }

  // The list may be empty.
  void add_cells(std::size_t row) {
    if (set_.begins.empty()) set_.begins.push_back(0);
    std::set<std::int32_t> classes;
    if (raw_.labels.kind != Column::Kind::kOther && !raw_.labels.is_null(row)) {
      if (raw_.labels.kind != Column::Kind::kList)
        fail(row, "the label has the type {}, expected a list of labels", raw_.labels.type);
      for (std::size_t cell = raw_.labels.begins[row]; cell < raw_.labels.begins[row + 1]; ++cell)
        classes.insert(id_of(raw_.labels.children.front(), cell, row));
    }
    set_.classes.insert(set_.classes.end(), classes.begin(), classes.end());
    set_.begins.push_back(set_.classes.size());
  }

  const RawExamples& raw_;
  const LabelSet& labels_;
  ExampleSet& set_;
};

std::string_view text_of(const RawExamples& raw, const Column& column, std::size_t row) {
  if (column.kind == Column::Kind::kText && !column.is_null(row)) return column.texts[row];
  if (raw.rows.untyped()) return "";  // an empty cell
  raise<DataError>("{}: column \"{}\" is null, expected text", raw.rows.location(row), column.name);
}

// Labels of a type that is not read are an error where labels are needed, and no labels elsewhere.
void check_label_type(RawExamples& raw, bool needed) {
  const Column& labels = raw.labels;
  const bool list = labels.kind == Column::Kind::kList;
  if (!labels.is_unreadable() && !(list && labels.children.front().is_unreadable())) return;
  if (needed) {
    raise<DataError>(
        "{}: column \"{}\" has the type {}, expected texts, numbers, truth values or lists of them",
        raw.rows.location(0), labels.name, labels.type);
  }
  raw.labels = Column();
}

}  // namespace

// --- columns ---

std::vector<std::string> ExampleReader::choose_texts(const data::RowLoader& read,
                                                     std::span<const std::string> names) {
  if (arguments_.script == Script::kClassification) {
    return tasks::comma_list(arguments_.text_column_names.value_or("sentence"));
  }
  if (arguments_.task_name) {
    const GlueTask& task = *find_glue_task(*arguments_.task_name);
    std::vector<std::string> texts{std::string(task.first_column)};
    if (!task.second_column.empty()) texts.emplace_back(task.second_column);
    return texts;
  }
  if (has(names, "sentence1") && has(names, "sentence2")) return {"sentence1", "sentence2"};
  // The first two columns in file order, as in run_glue.py, where every column is a text or an
  // error.
  std::vector<std::string> texts;
  for (const std::string& name : names) {
    if (name == "label" || texts.size() == 2) continue;
    const auto contents =
        data::is_nameless(name) ? data::ColumnContents() : data::column_contents(read, name);
    if (contents.kind == data::ColumnContents::Kind::kTexts) {
      texts.push_back(name);
    } else {
      left_out_.push_back(
          fmt::format("\"{}\" ({})", name, contents.words.empty() ? "no name" : contents.words));
    }
  }
  if (texts.empty()) {
    raise<DataError>(
        "there is no column with texts in addition to \"label\": found {}; name the columns of "
        "texts sentence1 and sentence2, or pass --text_column_names to tandem run_classification",
        left_out_.empty() ? "no other column" : fmt::to_string(fmt::join(left_out_, ", ")));
  }
  return texts;
}

std::vector<std::string> ExampleReader::choose(const data::RowLoader& read,
                                               std::span<const std::string> names,
                                               bool label_needed) {
  if (texts_.empty()) texts_ = choose_texts(read, names);
  std::vector<std::string> wanted = texts_;
  const std::string label = arguments_.label_column();
  if (label_needed || has(names, label)) wanted.push_back(label);
  require_columns(read, names, wanted);
  check_removed(names, wanted);
  return wanted;
}

void ExampleReader::require_columns(const data::RowLoader& read, std::span<const std::string> names,
                                    std::span<const std::string> wanted) const {
  for (const std::string& name : wanted) {
    if (has(names, name)) continue;
    const bool label = name == arguments_.label_column() && !has(texts_, name);
    const bool flags = arguments_.script == Script::kClassification;
    raise<DataError>("there is no column \"{}\", found {}{}", name,
                     data::describe_columns(read, names),
                     !flags  ? ""
                     : label ? "; name the labels' column with --label_column_name"
                             : "; name the texts' columns with --text_column_names");
  }
}

// Columns that are not wanted are not read, so there is nothing to do for those to be removed.
void ExampleReader::check_removed(std::span<const std::string> names,
                                  std::span<const std::string> wanted) const {
  if (!arguments_.remove_columns) return;
  for (const std::string& name : tasks::comma_list(*arguments_.remove_columns)) {
    if (!has(names, name)) {
      raise<DataError>("--remove_columns: there is no column \"{}\", found \"{}\"", name,
                       fmt::join(names, "\", \""));
    }
    if (has(wanted, name)) {
      raise<ConfigError>("--remove_columns: the column \"{}\" has the texts or the labels", name);
    }
  }
}

std::string ExampleReader::describe_columns() const {
  return fmt::format("texts from \"{}\", labels from \"{}\"{}{}", fmt::join(texts_, "\", \""),
                     arguments_.label_column(),
                     left_out_.empty() ? "" : "; left out: ", fmt::join(left_out_, ", "));
}

RawExamples ExampleReader::read(std::span<const std::filesystem::path> files,
                                std::optional<std::size_t> rows, std::string_view part,
                                const std::optional<std::int64_t>& max_samples) {
  RawExamples raw;
  const data::RowOptions options{
      .choose =
          [&](std::span<const std::string> names) {
            const data::RowLoader first = [&](const data::RowOptions& of_one) {
              return data::read_rows(files.first(1), of_one);
            };
            return choose(first, names, part != "test");
          },
      .num_rows = rows};
  raw.rows = data::read_rows(files, options);
  raw.columns = texts_;
  for (const std::string& name : texts_) {
    const Column& column = *raw.rows.find(name);
    if (column.kind == Column::Kind::kText) continue;
    if (column.kind == Column::Kind::kOther && !column.is_unreadable()) continue;
    raise<DataError>("{}: column \"{}\" has the type {}, expected text", raw.rows.location(0), name,
                     column.type);
  }
  if (const Column* labels = raw.rows.find(arguments_.label_column())) {
    raw.labels = *labels;
    if (raw.rows.untyped()) data::infer_type(raw.labels);
    check_label_type(raw, part != "test");
  }
  raw.used.resize(raw.rows.size());
  std::iota(raw.used.begin(), raw.used.end(), 0u);
  if (part == "train" && arguments_.shuffle_train_dataset) {
    raw.used =
        numpy_permutation(raw.rows.size(), static_cast<std::uint64_t>(arguments_.shuffle_seed));
  }
  if (max_samples) {
    raw.used.resize(std::min(raw.used.size(),
                             static_cast<std::size_t>(std::max<std::int64_t>(0, *max_samples))));
  }
  return raw;
}

// --- examples ---

ExampleSet make_examples(RawExamples raw, const LabelSet& labels, std::string_view delimiter,
                         bool pairs, bool need_labels) {
  ExampleSet set;
  std::vector<const Column*> columns;
  for (const std::string& name : raw.columns) columns.push_back(raw.rows.find(name));
  for (const std::uint32_t row : raw.used) {
    if (pairs || columns.size() == 1) {
      set.first.push_back(text_of(raw, *columns[0], row));
      if (columns.size() > 1) set.second.push_back(text_of(raw, *columns[1], row));
      continue;
    }
    std::string& text = set.joined.emplace_back();
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (c > 0) text += delimiter;
      text += text_of(raw, *columns[c], row);
    }
    set.first.push_back(text);
  }
  Labeller(raw, labels, set).run(need_labels);
  set.used = std::move(raw.used);
  set.rows = std::move(raw.rows);
  return set;
}

Problem problem_of(const RawExamples& raw, const ClassificationArguments& arguments) {
  const Column& labels = raw.labels;
  const bool numbers = labels.kind == Column::Kind::kNumber;
  const bool lists = labels.kind == Column::Kind::kList;
  const bool regression = arguments.do_regression.value_or(numbers);
  if (regression && !numbers && labels.kind != Column::Kind::kInteger) {
    raise<ConfigError>("--do_regression true: {}: the labels have the type {}, expected numbers",
                       raw.rows.location(0), labels.type);
  }
  if (regression) return Problem::kRegression;
  if (lists && arguments.script == Script::kGlue) {
    raise<DataError>(
        "{}: the labels are lists, which run_glue cannot use; tandem run_classification trains on "
        "several labels per text",
        raw.rows.location(0));
  }
  return lists ? Problem::kMultiLabel : Problem::kSingleLabel;
}

void require_labels(const RawExamples& raw) {
  for (const std::uint32_t row : raw.used) {
    if (raw.labels.kind == Column::Kind::kOther || raw.labels.is_null(row))
      raise<DataError>("{}: the label is missing", raw.rows.location(row));
  }
}

std::vector<PlacedLabel> other_labels(const RawExamples& raw, const LabelSet& known) {
  const Column& column = raw.labels;
  const bool lists = column.kind == Column::Kind::kList;
  const Column& cells = lists ? column.children.front() : column;
  std::vector<PlacedLabel> others;
  std::set<std::string> seen;
  for (const std::uint32_t row : raw.used) {
    if (column.kind == Column::Kind::kOther || column.is_null(row)) continue;
    const std::size_t begin = lists ? column.begins[row] : row;
    const std::size_t end = lists ? column.begins[row + 1] : row + 1;
    for (std::size_t cell = begin; cell < end; ++cell) {
      const auto text = label_text(cells, cell);
      if (!text || is_no_label(cells, cell) || known.ids.contains(*text)) continue;
      if (seen.insert(*text).second) others.push_back({*text, raw.rows.location(row)});
    }
  }
  return others;
}

std::optional<std::string> first_fraction(const RawExamples& raw) {
  if (raw.labels.kind != Column::Kind::kNumber) return std::nullopt;
  for (const std::uint32_t row : raw.used) {
    const double number = raw.labels.numbers[row];
    if (!raw.labels.is_null(row) && number != std::floor(number))
      return fmt::format("{}: {}", raw.rows.location(row), number);
  }
  return std::nullopt;
}

std::string class_distribution(const RawExamples& raw) {
  constexpr std::size_t kShown = 20;
  if (raw.labels.kind == Column::Kind::kOther || raw.labels.kind == Column::Kind::kList) return "";
  std::vector<std::pair<std::string, std::size_t>> counts;
  std::map<std::string, std::size_t> location;
  for (const std::uint32_t row : raw.used) {
    const std::string text = label_text(raw.labels, row).value_or("none");
    const auto [found, is_new] = location.emplace(text, counts.size());
    if (is_new) counts.emplace_back(text, 0);
    ++counts[found->second].second;
  }
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, counts.size()); ++i) {
    const auto& [text, count] = counts[i];
    out += fmt::format("{}{}: {} ({:.2f}%)", out.empty() ? "" : ", ", text, count,
                       100 * static_cast<double>(count) / static_cast<double>(raw.used.size()));
  }
  return out + (counts.size() > kShown ? fmt::format(", {} more", counts.size() - kShown) : "");
}

}  // namespace tandem::text_classification
