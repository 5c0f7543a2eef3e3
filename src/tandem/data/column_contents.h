// Classifies the values of a column, for choosing among columns that the user did not name.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "tandem/data/read_rows.h"

namespace tandem::data {

struct ColumnContents {
  enum class Kind {
    kTexts,  // at least one is not a number, a boolean or a date
    kLists,  // lists of texts or whole numbers
    kOther,
  };
  Kind kind = Kind::kOther;
  bool list_of_texts = false;
  std::string words;  // for people: "texts", "numbers", "dates", "nothing", "decimal"
};

// Reads files with these options.
using RowLoader = std::function<Rows(const RowOptions&)>;

// Reads the column. One that cannot be read is kOther, and `words` has the reason. Cells of files
// without types (CSV) that pandas takes for missing count neither as texts nor as numbers.
ColumnContents column_contents(const RowLoader& read, std::string_view name);

// Whether a column has no name: an empty one, or what pandas calls it ("Unnamed: 0",
// "__index_level_0__"), as the index that to_csv() and to_parquet() write.
bool is_nameless(std::string_view name);

// For an error about columns: `"" (no name), "id" (numbers), "text" (texts)`; of many the first.
std::string describe_columns(const RowLoader& read, std::span<const std::string> names);

}  // namespace tandem::data
