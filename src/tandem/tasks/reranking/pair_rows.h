// The rows of data files as pairs of a query and a passage with their labels. A row is one pair, or
// a query with several passages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/read_rows.h"
#include "tandem/tasks/reranking/reranking_arguments.h"

namespace tandem::tasks::reranking {

// The columns that are read of a row.
enum class RowForm {
  kPairs,  // each pair is a sample with a label; a row without a label has a positive and negatives
  kTuples,     // a query with a positive and negatives, and labels of the row
  kPositives,  // a query with a positive and, if there are some, negatives; labels are left out
  kLists,      // a query with passages and a label of each
  // As kLists; also a query with its positives and a column `documents` of what a search found.
  kSearches,
};

struct PairRows {
  data::Rows rows;
  // One entry per pair, row after row. Views belong to `rows`.
  std::vector<std::string_view> queries, passages;
  std::vector<float> labels;             // one per pair, or per row; empty: there are none
  std::size_t labels_per_row = 0;        // kTuples
  std::vector<std::uint32_t> row_of;     // the row of each pair
  std::vector<std::uint32_t> begins{0};  // the first pair of each sample, and the end
  // kSearches with documents: their relevance in the order of the search, of each sample, with the
  // positives that it missed behind them; no entries for a sample whose documents have no positive.
  std::vector<std::vector<int>> base;
  std::vector<std::string> columns;   // that were read
  std::vector<std::string> left_out;  // columns whose type no loss reads

  std::string location(std::size_t pair) const { return rows.location(row_of[pair]); }
};

// Texts of the samples that a batch has only once, for no_duplicates(): [columns, samples], with
// equal numbers for equal texts. As in sentence-transformers a list of passages is one text.
struct BatchTexts {
  std::vector<std::uint32_t> values;
  std::size_t columns = 0;
};
BatchTexts batch_texts(const PairRows& pairs, RowForm form);

// Columns in the order of the file: the query, then
//   a passage and the column of the label, a number;
//   a column of lists of passages, and the column of the label, lists of as many numbers;
//   a positive, one or more columns of negatives, and a number for the margin, a list of margins
//   of the negatives, or a list of scores of all passages (kTuples);
//   a positive and any number of columns of negatives (kPositives);
//   without a label one or more columns of passages or of lists of them: those of the first are
//   relevant (label 1), the others are not (label 0).
// `need_labels`: training and evaluation. Throws DataError that names the file and the row.
PairRows read_pairs(std::span<const std::filesystem::path> files, RowForm form,
                    const RerankingArguments& arguments,
                    const std::optional<std::int64_t>& max_samples, bool need_labels);

}  // namespace tandem::tasks::reranking
