#include "tandem/data/json_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/text_file.h"
#include "tandem/data/json_column.h"
#include "tandem/data/json_cursor.h"
#include "tandem/formats/read_budget.h"

namespace tandem::data {
namespace {

constexpr std::string_view kExpected =
    "expected JSON lines, a list of objects, or an object with such a list as \"data\" (pandas: "
    "orient=\"records\", with or without lines=True)";

// A part of a text of JSON lines: where it begins, and how many rows and lines are before it.
struct JsonPart {
  std::size_t begin = 0, rows = 0, lines = 0;
};

// The rows of a text, whatever its form. visit(cursor) consumes the value of a row.
class JsonRows {
 public:
  // The rows behind `part` of a text that has lines of JSON.
  JsonRows(std::string_view text, const JsonPart& part) : text_(text), begin_(part.begin) {}
  explicit JsonRows(std::string_view text) : text_(text) {
    JsonCursor cursor(text);
    if (cursor.at_end()) raise<DataError>("the file is empty");
    begin_ = cursor.position();
    if (cursor.peek() != '{') {
      form_ = Form::kList;
      return;
    }
    cursor.skip();
    if (cursor.at_end()) find_rows_in_object();
  }

  enum class Form {
    kLines,    // begin_ is where the first row begins
    kList,     // … where the list of rows begins
    kSplit,    // … and its rows are lists of values
    kColumns,  // … where the object of columns begins
  };
  Form form() const { return form_; }
  // kSplit: the list of the columns' names.
  JsonCursor column_list() const { return JsonCursor(text_, columns_); }
  // Cursor at the first row, or of the object of columns.
  JsonCursor begin() const { return JsonCursor(text_, begin_); }

  template <class Visit>
  void for_each(Visit&& visit) const {
    JsonCursor cursor(text_, begin_);
    if (form_ != Form::kLines) {
      if (cursor.peek() != '[') raise<DataError>("{}", kExpected);
      cursor.elements([&] { visit(cursor); });
      if (!in_object_) cursor.require_end();
      return;
    }
    while (!cursor.at_end()) visit(cursor);
  }

 private:
  // The text is one object: a row by itself, unless it holds the rows.
  void find_rows_in_object() {
    JsonCursor cursor(text_, begin_);
    std::size_t data = 0, columns = 0;
    bool any = false, all_objects = true, rows_are_lists = false;
    cursor.members([&](std::string_view key) {
      const char c = cursor.peek();
      any = true;
      all_objects &= c == '{';
      if (c == '[' && key == "columns") columns = cursor.position();
      if (c == '[' && key == "data") {
        data = cursor.position();
        JsonCursor inside(text_, data + 1);
        rows_are_lists = inside.peek() == '[';
      }
      cursor.skip();
    });
    in_object_ = data != 0;
    if (data != 0 && (columns == 0 || !rows_are_lists)) {
      form_ = Form::kList;
      begin_ = data;
    } else if (data != 0) {
      form_ = Form::kSplit;
      begin_ = data;
      columns_ = columns;
    } else if (any && all_objects) {
      form_ = Form::kColumns;
    }
  }

  std::string_view text_;
  Form form_ = Form::kLines;
  std::size_t begin_ = 0, columns_ = 0;
  bool in_object_ = false;  // the list of rows is a member of an object
};

class JsonSource final : public formats::TableSource {
 public:
  explicit JsonSource(std::string_view text) : JsonSource(JsonRows(text), text, {}) {}
  // The rows of a text without byte order mark that JsonParts has cut off.
  JsonSource(std::string_view text, const JsonPart& part)
      : JsonSource(JsonRows(text, part), text, part, /*objects=*/true) {}

  JsonSource(const JsonRows& rows, std::string_view text, const JsonPart& part,
             bool objects = false)
      : text_(text),
        rows_(rows),
        part_(part),
        budget_(text.size() - part.begin, "leave out the columns that few rows have"),
        writer_(texts_, objects) {
    if (rows_.form() == JsonRows::Form::kColumns) {
      find_columns();
    } else {
      find_names();
    }
    if (num_rows_ == 0) raise<DataError>("the file has no row in it");
  }

  std::span<const std::string> column_names() const override { return names_; }

  bool next(std::span<const std::size_t> columns, formats::Table& table) override {
    table = {};
    if (std::exchange(given_, true)) return false;
    table.num_rows = num_rows_;
    wanted_.assign(names_.size(), nullptr);
    table.columns.reserve(columns.size());
    for (const std::size_t i : columns) {
      budget_.take_values(num_rows_);
      formats::Column& column = table.columns.emplace_back(JsonColumnWriter::begin(names_[i]));
      if (wanted_[i] == nullptr) wanted_[i] = &column;
    }
    row_ = 0;
    if (rows_.form() == JsonRows::Form::kColumns) {
      read_columns();
    } else {
      rows_.for_each([&](JsonCursor& cursor) { read_row(cursor, table); });
    }
    for (std::size_t c = 0; c < columns.size(); ++c) {  // a column that was asked for twice
      if (wanted_[columns[c]] != &table.columns[c]) table.columns[c] = *wanted_[columns[c]];
    }
    return true;
  }

  std::string location(std::size_t row) const override {
    const std::size_t number = part_.rows + row + 1;
    return line(row) == 0 ? fmt::format("row {}", number)
                          : fmt::format("row {} (line {})", number, line(row));
  }
  std::size_t line(std::size_t row) const override { return row < lines_.size() ? lines_[row] : 0; }

 private:
  bool is_split() const { return rows_.form() == JsonRows::Form::kSplit; }

  // Adds where the row is to what is wrong with it.
  template <class Read>
  void in_row(Read&& read) {
    try {
      read();
    } catch (const DataError& error) {
      raise<DataError>("{}: {}", location(row_), error.what());
    }
  }

  // --- the names of the columns ---

  std::size_t column_of(std::string_view key) {
    const std::string_view name = decode_json_string(key, keys_);
    const auto [found, is_new] = index_.try_emplace(name, names_.size());
    if (is_new) {
      formats::require_utf8(
          name, [&] { return fmt::format("the name of column {}", names_.size() + 1); });
      names_.emplace_back(name);
    } else if (name.data() != key.data()) {
      keys_.pop_back();
    }
    return found->second;
  }

  void find_names() {
    if (is_split()) {
      JsonCursor cursor = rows_.column_list();
      cursor.elements([&] { column_of(cursor.string()); });
    }
    std::size_t line = part_.lines + 1, counted = part_.begin;
    rows_.for_each([&](JsonCursor& cursor) {
      const char c = cursor.peek();
      if (rows_.form() == JsonRows::Form::kLines) {
        const std::string_view before = text_.substr(counted, cursor.position() - counted);
        line += static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
        counted = cursor.position();
        lines_.push_back(line);
      }
      if (is_split()) {
        cursor.skip();
      } else if (c == '{') {
        cursor.members([&](std::string_view key) {
          column_of(key);
          cursor.skip();
        });
      } else {
        row_ = num_rows_;
        in_row([] { raise<DataError>("a row is an object, found something else"); });
      }
      ++num_rows_;
    });
  }

  // {"NAME": {"0": …, "1": …}, …}: every column has a value for the same rows.
  void find_columns() {
    std::vector<std::string_view> labels;
    JsonCursor cursor = rows_.begin();
    cursor.members([&](std::string_view key) {
      const std::size_t column = column_of(key);
      std::size_t row = 0;
      begins_.resize(names_.size());
      begins_[column] = cursor.position();
      cursor.members([&](std::string_view label) {
        if (column == 0) labels.push_back(label);
        if (row >= labels.size() || labels[row] != label)
          raise<DataError>("column \"{}\" has other rows than column \"{}\"; {}", names_[column],
                           names_.front(), kExpected);
        ++row;
        cursor.skip();
      });
      if (row != labels.size())
        raise<DataError>("column \"{}\" has {} rows, but column \"{}\" has {}; {}", names_[column],
                         row, names_.front(), labels.size(), kExpected);
    });
    num_rows_ = labels.size();
  }

  // --- values ---

  void read_row(JsonCursor& cursor, formats::Table& table) {
    in_row([&] {
      std::size_t column = 0;
      const auto read = [&](std::size_t i) {
        if (wanted_[i] == nullptr) return cursor.skip();
        if (wanted_[i]->size > row_) raise<DataError>("the key \"{}\" occurs twice", names_[i]);
        writer_.add(*wanted_[i], cursor);
      };
      if (is_split()) {
        cursor.elements([&] {
          if (column >= names_.size())
            raise<DataError>("more values than the {} columns", names_.size());
          read(column++);
        });
      } else {
        cursor.members([&](std::string_view key) { read(column_of(key)); });
      }
    });
    ++row_;
    for (formats::Column& column : table.columns) {  // what a row lacks is null
      if (column.size < row_) writer_.add_null(column);
    }
  }

  void read_columns() {
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      if (wanted_[i] == nullptr) continue;
      JsonCursor cursor(text_, begins_[i]);
      row_ = 0;
      cursor.members([&](std::string_view) {
        in_row([&] { writer_.add(*wanted_[i], cursor); });
        ++row_;
      });
    }
  }

  std::string_view text_;
  JsonRows rows_;
  JsonPart part_;
  formats::ReadBudget budget_;
  std::deque<std::string> keys_, texts_;
  JsonColumnWriter writer_;
  std::unordered_map<std::string_view, std::size_t> index_;
  std::vector<std::string> names_;
  std::vector<std::size_t> lines_;
  std::vector<std::size_t> begins_;       // Form::kColumns: those of the columns' objects
  std::vector<formats::Column*> wanted_;  // by column; null: skipped
  std::size_t num_rows_ = 0;
  std::size_t row_ = 0;  // being read
  bool given_ = false;
};

// JSON lines, a JsonSource for each part. Rows end where values do, for a row may have several
// lines.
class JsonParts final : public formats::TableSource {
 public:
  JsonParts(std::string_view text, std::size_t part_bytes) : text_(text), part_bytes_(part_bytes) {
    open_next();
    const auto names = source_->column_names();
    names_.assign(names.begin(), names.end());
  }

  std::span<const std::string> column_names() const override { return names_; }

  bool next(std::span<const std::size_t> columns, formats::Table& table) override {
    while (true) {
      if (!source_ && !open_next()) return false;
      const auto own = source_->column_names();
      std::vector<std::size_t> found, wanted;  // in the part, and which of `columns`
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const auto at = std::find(own.begin(), own.end(), names_[columns[c]]);
        if (at == own.end()) continue;
        found.push_back(static_cast<std::size_t>(at - own.begin()));
        wanted.push_back(c);
      }
      formats::Table part;
      if (!source_->next(found, part)) {
        source_.reset();
        continue;
      }
      table = {.num_rows = part.num_rows, .columns = {}};
      for (const std::size_t i : columns) table.columns.push_back(nulls(names_[i], part.num_rows));
      for (std::size_t c = 0; c < wanted.size(); ++c)
        table.columns[wanted[c]] = std::move(part.columns[c]);
      return true;
    }
  }

  std::string location(std::size_t row) const override { return source_->location(row); }
  std::size_t line(std::size_t row) const override { return source_->line(row); }

 private:
  static formats::Column nulls(std::string_view name, std::size_t rows) {
    formats::Column column = JsonColumnWriter::begin(name);
    column.size = rows;
    column.valid.assign(rows, 0);
    return column;
  }

  // False at the end of the text.
  bool open_next() {
    const JsonPart part = next_;
    JsonCursor cursor(text_, part.begin);
    if (cursor.at_end()) return false;
    while (!cursor.at_end() && cursor.position() - part.begin < part_bytes_) {
      cursor.skip();
      ++next_.rows;
    }
    next_.begin = cursor.position();
    const std::string_view cut = text_.substr(part.begin, next_.begin - part.begin);
    next_.lines += static_cast<std::size_t>(std::count(cut.begin(), cut.end(), '\n'));
    source_ = std::make_unique<JsonSource>(text_.substr(0, next_.begin), part);
    return true;
  }

  std::string_view text_;
  std::size_t part_bytes_;
  JsonPart next_;
  std::unique_ptr<JsonSource> source_;  // source of the current part
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<formats::TableSource> open_json(std::string_view text) {
  return std::make_unique<JsonSource>(without_byte_order_mark(text));
}

std::unique_ptr<formats::TableSource> open_json_in_parts(std::string_view text,
                                                         std::size_t part_bytes) {
  text = without_byte_order_mark(text);
  const JsonRows rows(text);
  if (rows.form() != JsonRows::Form::kLines)
    return std::make_unique<JsonSource>(rows, text, JsonPart{}, /*objects=*/true);
  return std::make_unique<JsonParts>(text, part_bytes);
}

}  // namespace tandem::data
