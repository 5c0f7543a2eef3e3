// The rows of data files as texts with labels: which columns are taken, what is left of them, and
// what is wrong with them.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/column_contents.h"
#include "tandem/data/read_rows.h"
#include "tandem/tasks/text_classification/classification_arguments.h"
#include "tandem/tasks/text_classification/labels.h"

namespace tandem::text_classification {

// A part of the data: its rows, those of them that are used, and where in them the texts are.
struct RawExamples {
  data::Rows rows;
  std::vector<std::uint32_t> used;   // rows, in the order of the examples
  std::vector<std::string> columns;  // with text
  formats::Column labels;            // labels of all rows; kOther: there is no such column
};

// Reads the parts of a job, which agree on the columns that the first one has.
class ExampleReader {
 public:
  explicit ExampleReader(const ClassificationArguments& arguments) : arguments_(arguments) {}

  // `part` is train, validation or test; `max_samples` the first n. Throws DataError.
  RawExamples read(std::span<const std::filesystem::path> files, std::optional<std::size_t> rows,
                   std::string_view part, const std::optional<std::int64_t>& max_samples);
  // Which columns were taken, for people; once.
  std::string describe_columns() const;

 private:
  std::vector<std::string> choose(const data::RowLoader& read, std::span<const std::string> names,
                                  bool label_needed);
  std::vector<std::string> choose_texts(const data::RowLoader& read,
                                        std::span<const std::string> names);
  void require_columns(const data::RowLoader& read, std::span<const std::string> names,
                       std::span<const std::string> wanted) const;
  void check_removed(std::span<const std::string> names, std::span<const std::string> wanted) const;

  const ClassificationArguments& arguments_;
  std::vector<std::string> texts_;
  std::vector<std::string> left_out_;  // columns that come before them, each with the reason
};

// Texts and labels. Views belong to the object. Movable.
struct ExampleSet {
  std::vector<std::string_view> first;   // per example
  std::vector<std::string_view> second;  // empty: single texts
  // Labels; all empty when the part has none.
  std::vector<std::int32_t> classes;  // kSingleLabel; kMultiLabel: those of all examples
  std::vector<std::size_t> begins;    // kMultiLabel: begin of each example in classes, and the end
  std::vector<float> values;          // kRegression
  data::Rows rows;
  std::vector<std::uint32_t> used;  // row of each example
  std::deque<std::string> joined;   // texts of several columns

  std::size_t size() const { return first.size(); }
  bool labelled() const { return !classes.empty() || !begins.empty() || !values.empty(); }
  // kMultiLabel: in ascending order, each once.
  std::span<const std::int32_t> classes_of(std::size_t i) const {
    return std::span(classes).subspan(begins[i], begins[i + 1] - begins[i]);
  }
};

// `need_labels`: training and evaluation; else rows without labels make a set without. Throws
// DataError that names the file and row: no text, a label that is missing or unknown, a number
// where a class is needed.
ExampleSet make_examples(RawExamples raw, const LabelSet& labels, std::string_view delimiter,
                         bool pairs, bool need_labels);

// The problem that the labels are of. Throws DataError and ConfigError that name the file, for
// labels that the script or --do_regression cannot use.
Problem problem_of(const RawExamples& raw, const ClassificationArguments& arguments);
// Throws DataError that names the file and row of the first example without a label.
void require_labels(const RawExamples& raw);
// The labels of the examples that `known` has not, in the order of the examples, each with its
// first place: "'dev.csv', row 2 (line 3)".
struct PlacedLabel {
  std::string label, location;
};
std::vector<PlacedLabel> other_labels(const RawExamples& raw, const LabelSet& known);
// "'dev.csv', row 2 (line 3): 0.5": the first example whose label is a number and not a whole one;
// nothing if all are whole.
std::optional<std::string> first_fraction(const RawExamples& raw);

// "1: 39 (60.94%), 0: 25 (39.06%)": how often each label occurs, in the order of the rows.
std::string class_distribution(const RawExamples& raw);

}  // namespace tandem::text_classification
