// Rows whose positives or negatives are lists, as rows of one text per column.
//   {query, pos[], neg[]}   FlagEmbedding's training files
//   [a text column, a list of positives, lists of negatives …]   any names
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tandem/data/read_rows.h"

namespace tandem::tasks::embedding {

// The columns query, pos and neg of FlagEmbedding's files, neg only where it is there; none if the
// rows have another form. Its further columns (id, prompt, type, pos_scores …) are not inputs.
std::vector<std::string> flag_embedding_columns(const data::Rows& rows);

// Whether a column has lists of texts.
bool is_text_list(const formats::Column& column);

// Rows without lists. Texts belong to the rows that they were made of.
struct FlatRows {
  std::vector<formats::Column> columns;
  std::vector<std::uint32_t> rows;  // row that each flat row was made of
  // Rows with fewer negatives than columns, whose negatives are repeated in turn.
  std::size_t with_repeated = 0;
};

// The columns `names` without lists. The first one has texts. A list in the second column gives a
// flat row for each of its texts: all are positives of the first column's text. A list in a later
// column, or in a column named neg, negative or negatives, gives columns NAME_1, NAME_2 …, as many
// as the longest list has, but at most `most_negatives`; a shorter list is repeated in turn, as
// FlagEmbedding does. Throws DataError that names the row and the column: an empty list, a list
// with a value that is not a text, a list in the first column.
FlatRows without_lists(const data::Rows& rows, std::span<const std::string> names,
                       std::size_t most_negatives);

}  // namespace tandem::tasks::embedding
