// Which columns of data files are texts, and which one is the label.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/data/read_rows.h"
#include "tandem/tasks/embedding/list_columns.h"
#include "tandem/tasks/embedding/losses.h"

namespace tandem::tasks::embedding {

struct ColumnChoice {
  std::vector<std::string> texts = {};  // none: all text columns but the label, in file order
  // Unset: the first column called label, labels, score or scores.
  std::optional<std::string> label = std::nullopt;
  std::optional<std::size_t> most = std::nullopt;  // rows
};

struct RowColumns {
  data::Rows rows;
  FlatRows flat;          // flat form of `rows`, where a chosen column has lists; else empty
  std::size_t count = 0;  // rows that are used, the first ones
  std::vector<const formats::Column*> texts;
  std::string label;                  // name of the column; empty: none
  std::size_t labels_per_row = 0;     // several where the column has lists of numbers
  std::vector<float> labels;          // [count, labels_per_row]
  std::vector<std::string> left_out;  // columns that are neither
  std::vector<std::string> warnings;  // about rows that are used

  bool has_labels() const { return !label.empty(); }
  LabelKind label_kind() const;
  // For an error about a row that is used: "'train.csv', row 17 (line 18)".
  std::string location(std::size_t row) const {
    return rows.location(flat.rows.empty() ? row : flat.rows[row]);
  }
};

// Columns with lists of texts are read as list_columns.h describes; in FlagEmbedding's files query,
// pos and neg are the texts. At most 7 negatives of a list are used, as with FlagEmbedding's
// default --train_group_size 8. Throws what data::read_rows() throws, and DataError that names the
// row: for a column that is missing or has no texts, an empty cell, a label that is not a finite
// number, lists of labels of different lengths, and data without a text column.
RowColumns read_columns(std::span<const std::filesystem::path> files, const ColumnChoice& choice);

}  // namespace tandem::tasks::embedding
