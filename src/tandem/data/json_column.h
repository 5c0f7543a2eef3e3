// Columns made of JSON values whose type shows only as they come.
#pragma once

#include <deque>
#include <string>

#include "tandem/data/json_cursor.h"
#include "tandem/formats/table.h"

namespace tandem::data {

// Appends values to columns. A column has the type of its first value that is not null: text,
// integers, numbers (integers among them become numbers), truth values, or lists of one of these;
// a column of nothing but nulls is kOther. NaN is null, as pandas writes a missing value. Objects
// are structs with the fields of all of them where they are asked for.
class JsonColumnWriter {
 public:
  // Texts with escapes go to `texts`; the others stay in the text that the cursor reads.
  explicit JsonColumnWriter(std::deque<std::string>& texts, bool objects = false)
      : texts_(texts), objects_(objects) {}

  // An empty column.
  static formats::Column begin(std::string_view name);
  void add_null(formats::Column& column);
  // Consumes the value. Throws DataError that names the column: an object unless they are asked
  // for, values of different types, Infinity, a number that is too large, text that is not UTF-8, a
  // key that occurs twice.
  void add(formats::Column& column, JsonCursor& cursor, int depth = 0);

 private:
  void add_object(formats::Column& column, JsonCursor& cursor, int depth);
  void add_text(formats::Column& column, std::string_view raw);
  void add_scalar(formats::Column& column, std::string_view token);

  std::deque<std::string>& texts_;
  bool objects_;
};

}  // namespace tandem::data
