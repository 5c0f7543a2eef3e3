// Rows of JSON objects as a table.
#pragma once

#include <memory>
#include <string_view>

#include "tandem/data/table.h"

namespace tandem::data {

// The rows of `text`, which must outlive the source: JSON lines (an object per line, blank lines
// are skipped), a list of objects, or an object with such a list under "data". The columns are the
// keys of all rows, in the order in which they first occur; a row without a key has null there.
// next() gives all rows at once. A column has one type: text, integers, numbers (integers among
// them become numbers), truth values, or lists of one of these; of nothing but null it is kOther.
//
// Throws DataError that says which row and line: broken JSON, text that is not UTF-8, a row that is
// no object, values of different types in a column, objects as values, no row at all.
std::unique_ptr<TableSource> open_json(std::string_view text);

}  // namespace tandem::data
