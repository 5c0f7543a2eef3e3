// Rows of a file on their way to examples: what Arrow, Parquet, CSV and JSON have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/thread_pool.h"

namespace tandem::formats {

// One column of a batch of rows, or a part of one: nested types are trees of columns, laid out as
// in Arrow.
struct Column {
  enum class Kind {
    kText,     // texts[size], valid UTF-8
    kInteger,  // integers[size]
    kNumber,   // numbers[size]
    kBool,     // integers[size], 0 or 1
    kList,     // row i holds the elements [begins[i], begins[i + 1]) of children[0]
    kStruct,   // children are its fields, each of `size`
    kOther,    // a type that examples have no use for, or one that was not read
  };

  // Whether its values are of a type that no reader takes, which `type` names. A column of nulls
  // only is kOther, too, of the type "null".
  bool is_unreadable() const { return kind == Kind::kOther && type != "null"; }
  bool is_null(std::size_t i) const { return !valid.empty() && valid[i] == 0; }
  // The field of this name of a struct; null if it is missing.
  const Column* field(std::string_view field_name) const;

  std::string name;
  std::string type;  // in the words of the file's format, for messages
  Kind kind = Kind::kOther;
  std::size_t size = 0;
  std::vector<std::uint8_t> valid;  // empty: no value is null
  std::vector<std::string_view> texts;
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  std::vector<std::size_t> begins;
  std::vector<Column> children;
};

struct Table {
  std::size_t num_rows = 0;
  std::vector<Column> columns;
};

// A file as batches of rows. Not thread-safe. Every error is a DataError that names the position in
// the file, but not the file.
class TableSource {
 public:
  virtual ~TableSource() = default;
  // Names of the top-level columns, in file order.
  virtual std::span<const std::string> column_names() const = 0;
  // Reads the next rows of these columns (indices of column_names(), the same in every call), in
  // this order; false when there are no more, in later calls, too. Texts stay valid until the next
  // call.
  virtual bool next(std::span<const std::size_t> columns, Table& table) = 0;
  // Where row `row` of the table that next() gave last is: "row 17", "record batch 2, row 17".
  virtual std::string location(std::size_t row) const = 0;
  // The line, counted from 1, that this row begins in; 0: the file has no lines.
  virtual std::size_t line(std::size_t) const { return 0; }
  // A text that the file's schema keeps under `key`, as `datasets` keeps the names of classes
  // under "huggingface"; empty: none.
  virtual std::string_view metadata(std::string_view) const { return {}; }
};

// Checks a text that goes into a column, once, where it enters the program. Throws DataError that
// begins with where(), and names the byte.
void require_utf8(std::string_view text, FunctionRef<std::string()> where);

}  // namespace tandem::formats
