#include "tandem/tasks/reranking/pair_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/tasks/no_duplicates.h"

namespace tandem::tasks::reranking {
namespace {

using formats::Column;

bool is_list_of(const Column& column, Column::Kind kind) {
  return column.kind == Column::Kind::kList && column.children.size() == 1 &&
         column.children[0].kind == kind;
}

bool is_passages(const Column& column) {
  return column.kind == Column::Kind::kText || is_list_of(column, Column::Kind::kText);
}

bool is_label(const Column& column, const RerankingArguments& arguments) {
  if (arguments.label_column) return column.name == *arguments.label_column;
  constexpr std::array<std::string_view, 4> kNames = {"label", "labels", "score", "scores"};
  return std::find(kNames.begin(), kNames.end(), column.name) != kNames.end();
}

// The value of a numeric column; nothing for another kind, a missing value or one that is not
// finite.
std::optional<float> number_at(const Column& column, std::size_t i) {
  if (column.is_null(i)) return std::nullopt;
  if (column.kind == Column::Kind::kInteger || column.kind == Column::Kind::kBool)
    return static_cast<float>(column.integers[i]);
  if (column.kind != Column::Kind::kNumber || !std::isfinite(column.numbers[i]))
    return std::nullopt;
  return static_cast<float>(column.numbers[i]);
}

// Appends the samples of the rows of one part.
class PairBuilder {
 public:
  PairBuilder(PairRows& pairs, RowForm form, bool need_labels, bool rerank_positives)
      : pairs_(pairs),
        form_(form),
        need_labels_(need_labels),
        rerank_positives_(rerank_positives) {}

  // Chooses among the columns that were read.
  void choose(std::string_view part_file, const RerankingArguments& arguments) {
    for (const Column& column : pairs_.rows.columns()) {
      if (form_ == RowForm::kPositives && is_label(column, arguments)) {
        pairs_.left_out.push_back(column.name);
        continue;
      }
      if (is_label(column, arguments)) {
        if (!label_) label_ = column;
      } else if (is_passages(column)) {
        texts_.push_back(&column);
      } else {
        pairs_.left_out.push_back(column.name);
        continue;
      }
      pairs_.columns.push_back(column.name);
    }
    if (label_ && pairs_.rows.untyped()) data::infer_type(*label_);
    check_columns(part_file, arguments);
    searched_ = form_ == RowForm::kSearches && !label_ && texts_.size() == 3 &&
                texts_[2]->name == "documents";
  }

  void add_row(std::size_t row) {
    row_ = static_cast<std::uint32_t>(row);
    const Column& query = *texts_.front();
    if (query.is_null(row)) fail("column \"{}\": found no text, expected a query", query.name);
    const std::size_t begin = pairs_.passages.size();
    if (searched_) {
      add_search();
    } else {
      for (std::size_t c = 1; c < texts_.size(); ++c)
        add_passages(*texts_[c], c == 1 ? 1.0f : 0.0f);
    }
    const std::size_t count = pairs_.passages.size() - begin;
    if (count == 0) fail("found no passage, expected at least one");
    pairs_.queries.resize(pairs_.passages.size(), query.texts[row]);
    pairs_.row_of.resize(pairs_.passages.size(), row_);
    const std::size_t labels_before = pairs_.labels.size();
    if (label_) add_labels(count);
    if (form_ == RowForm::kTuples) check_tuple(count, pairs_.labels.size() - labels_before);
    const auto end = static_cast<std::uint32_t>(pairs_.passages.size());
    if (form_ != RowForm::kPairs) return pairs_.begins.push_back(end);
    while (pairs_.begins.back() < end) pairs_.begins.push_back(pairs_.begins.back() + 1);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    raise<DataError>("{}: {}", pairs_.rows.location(row_),
                     fmt::format(text, std::forward<Args>(args)...));
  }

  void check_tuples(std::string_view file) const {
    if (!label_ && form_ == RowForm::kTuples)
      raise<DataError>("{}: found no label, expected a column label or score with margins", file);
    if (texts_[1]->kind != Column::Kind::kText) {
      raise<DataError>("{}: column \"{}\": found lists, expected the positive as one text", file,
                       texts_[1]->name);
    }
  }

  // In sentence-transformers a column of this name has what a search found, positives among it.
  void check_negatives(std::string_view file) const {
    if (form_ == RowForm::kSearches && texts_.size() == 3) return;
    for (std::size_t c = 2; c < texts_.size(); ++c) {
      if (texts_[c]->name == "documents") {
        raise<DataError>(
            "{}: column \"documents\": found passages of a search, expected negatives; name the "
            "column negative, or use lists with labels",
            file);
      }
    }
  }

  void check_columns(std::string_view file, const RerankingArguments& arguments) const {
    if (texts_.size() < 2 || texts_.front()->kind != Column::Kind::kText) {
      raise<DataError>("{}: found the text columns '{}', expected a query and a passage", file,
                       fmt::join(pairs_.columns, ", "));
    }
    if (form_ == RowForm::kPositives) return check_tuples(file);
    if (!label_ && arguments.label_column) {
      raise<DataError>("{}: found no column \"{}\", expected that of --label_column", file,
                       *arguments.label_column);
    }
    if (form_ == RowForm::kTuples) return check_tuples(file);
    if (!label_) {
      check_negatives(file);
      if (need_labels_ && texts_.size() == 2) {
        raise<DataError>(
            "{}: found one column of passages and no label, expected a column label or score, or a "
            "column of negatives",
            file);
      }
      return;
    }
    const bool lists = label_->kind == Column::Kind::kList;
    if (lists != (form_ == RowForm::kLists || form_ == RowForm::kSearches)) {
      raise<DataError>(
          "{}: column \"{}\": found {}, expected {}", file, label_->name,
          lists ? "lists of labels" : "one label of a row",
          lists ? "one number of a row for this loss; use a loss of lists, such as ListNetLoss"
                : "lists of labels for this loss or evaluator; use a loss of pairs, such as "
                  "BinaryCrossEntropyLoss");
    }
    if (texts_.size() != 2 || (texts_[1]->kind == Column::Kind::kList) != lists) {
      raise<DataError>(
          "{}: found the columns '{}', expected a query, {} and the label; name them with "
          "--train_columns",
          file, fmt::join(pairs_.columns, ", "), lists ? "a list of passages" : "a passage");
    }
  }

  // The loss reads the labels of a batch as a matrix.
  void check_tuple(std::size_t passages, std::size_t labels) {
    if (passages < 2) fail("found one passage, expected a positive and negatives");
    if (labels == 1 && passages != 2)
      fail("found 1 label, expected a list of {} margins", passages - 1);
    if (pairs_.labels_per_row == 0) pairs_.labels_per_row = labels;
    if (labels != pairs_.labels_per_row)
      fail("found {} labels, expected {} as in the rows before", labels, pairs_.labels_per_row);
  }

  // As the evaluator of cross-encoders: positives are found in the documents by their text.
  void add_search() {
    const std::vector<std::string_view> positives = passages_of(*texts_[1]);
    const std::vector<std::string_view> documents = passages_of(*texts_[2]);
    const auto is_positive = [&](std::string_view text) {
      return std::find(positives.begin(), positives.end(), text) != positives.end();
    };
    std::vector<int> base;
    for (const std::string_view text : documents) base.push_back(is_positive(text) ? 1 : 0);
    const auto found = static_cast<std::size_t>(std::count(base.begin(), base.end(), 1));
    if (found == 0) base.clear();
    if (found > 0 && found < positives.size())
      base.resize(base.size() + positives.size() - found, 1);
    pairs_.base.push_back(std::move(base));
    if (rerank_positives_)
      for (const std::string_view text : positives) add_passage(text, 1);
    for (const std::string_view text : documents) {
      if (!rerank_positives_ || !is_positive(text)) add_passage(text, is_positive(text) ? 1 : 0);
    }
  }

  std::vector<std::string_view> passages_of(const Column& column) {
    if (column.is_null(row_)) fail("column \"{}\": found no text", column.name);
    if (column.kind == Column::Kind::kText) return {column.texts[row_]};
    const Column& values = column.children[0];
    std::vector<std::string_view> texts;
    for (std::size_t i = column.begins[row_]; i < column.begins[row_ + 1]; ++i) {
      if (values.is_null(i)) fail("column \"{}\": found null, expected a text", column.name);
      texts.push_back(values.texts[i]);
    }
    return texts;
  }

  void add_passages(const Column& column, float label) {
    for (const std::string_view text : passages_of(column)) add_passage(text, label);
  }

  void add_passage(std::string_view text, float label) {
    pairs_.passages.push_back(text);
    if (!label_ && texts_has_negatives()) pairs_.labels.push_back(label);
  }

  bool texts_has_negatives() const { return texts_.size() > 2 && form_ != RowForm::kPositives; }

  void add_labels(std::size_t passages) {
    if (label_->kind != Column::Kind::kList) return add_label(*label_, row_);
    if (label_->is_null(row_)) fail("column \"{}\": found no list", label_->name);
    const std::size_t begin = label_->begins[row_], end = label_->begins[row_ + 1];
    if (end - begin != passages && (form_ != RowForm::kTuples || end - begin != passages - 1))
      fail("column \"{}\": found {} labels, expected {}, one of each passage", label_->name,
           end - begin, passages);
    for (std::size_t i = begin; i < end; ++i) add_label(label_->children[0], i);
  }

  void add_label(const Column& values, std::size_t i) {
    const std::optional<float> value = number_at(values, i);
    if (!value) fail("column \"{}\": found no number, expected one", label_->name);
    pairs_.labels.push_back(*value);
  }

  PairRows& pairs_;
  RowForm form_;
  bool need_labels_, rerank_positives_;
  bool searched_ = false;
  std::vector<const Column*> texts_;  // the query first
  std::optional<Column> label_;
  std::uint32_t row_ = 0;
};

// The columns to read: the ones that were named, the label among them, or all.
std::vector<std::string> wanted(std::span<const std::string> names,
                                const RerankingArguments& arguments) {
  if (!arguments.train_columns) return {names.begin(), names.end()};
  std::vector<std::string> columns = comma_list(*arguments.train_columns);
  Column named;
  for (const std::string& name : names) {
    named.name = name;
    if (is_label(named, arguments) &&
        std::find(columns.begin(), columns.end(), name) == columns.end())
      columns.push_back(name);
  }
  return columns;
}

}  // namespace

PairRows read_pairs(std::span<const std::filesystem::path> files, RowForm form,
                    const RerankingArguments& arguments,
                    const std::optional<std::int64_t>& max_samples, bool need_labels) {
  PairRows pairs;
  pairs.rows = data::read_rows(files, {.choose = [&](std::span<const std::string> names) {
                                 return wanted(names, arguments);
                               }});
  PairBuilder builder(pairs, form, need_labels, arguments.always_rerank_positives);
  builder.choose(pairs.rows.file(), arguments);
  std::size_t count = pairs.rows.size();
  if (max_samples) count = std::min(count, static_cast<std::size_t>(*max_samples));
  for (std::size_t row = 0; row < count; ++row) builder.add_row(row);
  return pairs;
}

BatchTexts batch_texts(const PairRows& pairs, RowForm form) {
  const std::size_t samples = pairs.begins.size() - 1;
  const bool is_list = form == RowForm::kLists || form == RowForm::kSearches;
  std::size_t passages = 1;
  for (std::size_t i = 0; i < samples && !is_list; ++i)
    passages = std::max<std::size_t>(passages, pairs.begins[i + 1] - pairs.begins[i]);
  BatchTexts texts{.values = std::vector<std::uint32_t>(samples * (1 + passages)),
                   .columns = 1 + passages};
  TextNumbers numbers;
  for (std::size_t i = 0; i < samples; ++i) {
    const std::size_t begin = pairs.begins[i], end = pairs.begins[i + 1];
    const std::uint32_t query = numbers.of(begin < end ? pairs.queries[begin] : "");
    for (std::size_t column = 0; column < texts.columns; ++column)
      texts.values[column * samples + i] = query;  // a sample may have fewer passages than others
    if (is_list) {
      std::string list;
      for (std::size_t pair = begin; pair < end; ++pair)
        list += fmt::format("{}:{}", pairs.passages[pair].size(), pairs.passages[pair]);
      texts.values[samples + i] = numbers.of(list);
      continue;
    }
    for (std::size_t pair = begin; pair < end; ++pair)
      texts.values[(1 + pair - begin) * samples + i] = numbers.of(pairs.passages[pair]);
  }
  return texts;
}

}  // namespace tandem::tasks::reranking
