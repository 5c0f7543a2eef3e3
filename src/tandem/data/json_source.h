// Rows of JSON objects as a table.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "tandem/formats/table.h"

namespace tandem::data {

// The rows of `text`, which must outlive the source:
//   * JSON lines: an object per line, or objects one after another; blank lines are skipped;
//   * a list of objects, or an object with such a list under "data";
//   * what pandas writes with orient="split", {"columns": […], "data": [[…], …]}, and with
//     orient="columns", {"NAME": {"0": …, "1": …}, …}.
// The columns are the keys of all rows, in the order in which they first occur; a row without a key
// has null there. next() gives all rows at once, and only the values of the columns that it is
// asked for are looked at: json_column.h has their types, json_cursor.h what may be a value.
//
// Throws DataError that names the row and line: for invalid JSON, a row that is not an object, a
// repeated key, a file without rows, and for the wanted columns whatever JsonColumnWriter refuses.
std::unique_ptr<formats::TableSource> open_json(std::string_view text);

// The same for a text that may be larger than memory: of JSON lines, next() gives the rows of about
// `part_bytes` bytes at a time. The columns are the keys of the first part. The other forms are
// given at once. Objects in a column are structs here.
std::unique_ptr<formats::TableSource> open_json_in_parts(std::string_view text,
                                                         std::size_t part_bytes);

}  // namespace tandem::data
