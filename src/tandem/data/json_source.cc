#include "tandem/data/json_source.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/data/read_budget.h"
#include "tandem/text/json_text.h"

namespace tandem::data {
namespace {

namespace dom = simdjson::dom;
using Kind = Column::Kind;

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kText:
      return "text";
    case Kind::kInteger:
      return "integer";
    case Kind::kNumber:
      return "number";
    case Kind::kBool:
      return "bool";
    case Kind::kList:
      return "list";
    default:
      return "null";
  }
}

Kind kind_of(const dom::element& value) {
  switch (value.type()) {
    case dom::element_type::STRING:
      return Kind::kText;
    case dom::element_type::INT64:
    case dom::element_type::UINT64:
      return Kind::kInteger;
    case dom::element_type::DOUBLE:
      return Kind::kNumber;
    case dom::element_type::BOOL:
      return Kind::kBool;
    case dom::element_type::ARRAY:
      return Kind::kList;
    case dom::element_type::NULL_VALUE:
      return Kind::kOther;
    case dom::element_type::OBJECT:
      return Kind::kStruct;
  }
  return Kind::kOther;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

// Appends values to a column, whose kind is that of its first value.
class ColumnWriter {
 public:
  explicit ColumnWriter(std::deque<std::string>& texts) : texts_(texts) {}

  void add_null(Column& column) {
    add_placeholder(column);
    column.valid.back() = 0;
  }

  void add(Column& column, const dom::element& value) {
    const Kind kind = kind_of(value);
    if (kind == Kind::kOther) return add_null(column);
    adopt(column, kind);
    add_placeholder(column);
    switch (kind) {
      case Kind::kText:
        column.texts.back() = texts_.emplace_back(value.get_string().value());
        break;
      case Kind::kBool:
        column.integers.back() = value.get_bool().value() ? 1 : 0;
        break;
      case Kind::kList:
        for (const dom::element element : value.get_array()) add(column.children.front(), element);
        column.begins.back() = column.children.front().size;
        break;
      default:
        add_number(column, value);
    }
  }

 private:
  // Room for one more value, whatever it is; null for now where that shows.
  static void add_placeholder(Column& column) {
    ++column.size;
    column.valid.push_back(1);
    if (column.kind == Kind::kText) column.texts.emplace_back();
    if (column.kind == Kind::kInteger || column.kind == Kind::kBool) column.integers.push_back(0);
    if (column.kind == Kind::kNumber) column.numbers.push_back(0);
    if (column.kind == Kind::kList) column.begins.push_back(column.begins.back());
  }

  static void add_number(Column& column, const dom::element& value) {
    if (column.kind == Kind::kNumber) {
      column.numbers.back() = value.get_double().value();
    } else if (value.get_int64().get(column.integers.back())) {
      raise<DataError>("\"{}\" is an integer of more than 64 bits", column.name);
    }
  }

  // Makes the column one that values of `kind` fit into.
  static void adopt(Column& column, Kind kind) {
    if (kind == Kind::kStruct) {
      raise<DataError>("\"{}\" is an object; expected text, a number, true, false or a list",
                       column.name);
    }
    if (column.kind == kind || (column.kind == Kind::kNumber && kind == Kind::kInteger)) return;
    if (column.kind == Kind::kInteger && kind == Kind::kNumber) {
      column.numbers.assign(column.integers.begin(), column.integers.end());
      column.integers.clear();
    } else if (column.kind == Kind::kOther) {
      fill_nulls(column, kind);
    } else {
      raise<DataError>("\"{}\" is {} here, but {} before", column.name, name_of(kind),
                       name_of(column.kind));
    }
    column.kind = kind;
    column.type = name_of(kind);
  }

  static void fill_nulls(Column& column, Kind kind) {
    if (kind == Kind::kText) column.texts.resize(column.size);
    if (kind == Kind::kInteger || kind == Kind::kBool) column.integers.resize(column.size);
    if (kind == Kind::kNumber) column.numbers.resize(column.size);
    if (kind != Kind::kList) return;
    column.begins.assign(column.size + 1, 0);
    Column& elements = column.children.emplace_back();
    elements.name = column.name;
    elements.type = name_of(Kind::kOther);
  }

  std::deque<std::string>& texts_;
};

class JsonSource final : public TableSource {
 public:
  explicit JsonSource(std::string_view text)
      : text_(text), budget_(text.size(), "leave out the columns that few rows have") {
    if (text_.starts_with("\xef\xbb\xbf")) text_.erase(0, 3);  // byte order mark
    text_.reserve(text_.size() + simdjson::SIMDJSON_PADDING);
    if (is_blank(text_)) raise<DataError>("the file is empty");
    read();
    text_ = {};
    for (const Column& column : columns_) names_.push_back(column.name);
  }

  std::span<const std::string> column_names() const override { return names_; }

  bool next(std::span<const std::size_t> columns, Table& table) override {
    table = {};
    if (std::exchange(given_, true)) return false;
    table.num_rows = num_rows_;
    for (const std::size_t i : columns) table.columns.push_back(std::move(columns_[i]));
    return num_rows_ > 0;
  }

  std::string place(std::size_t row) const override {
    return line(row) == 0 ? fmt::format("row {}", row + 1)
                          : fmt::format("row {} (line {})", row + 1, line(row));
  }
  std::size_t line(std::size_t row) const override { return row < lines_.size() ? lines_[row] : 0; }

 private:
  void read() {
    const std::size_t begin = text_.find_first_not_of(" \t\r\n");
    const std::size_t end = std::min(text_.find('\n', begin), text_.size());
    dom::element first;
    // A line that is an object by itself is a row, unless it is all there is and holds the rows.
    const bool is_row =
        !parser_.parse(text_.data() + begin, end - begin, false).get(first) && first.is_object();
    const bool alone = is_blank(std::string_view(text_).substr(end));
    if (is_row && !(alone && has_rows(first))) return read_lines();
    read_document();
  }

  static bool has_rows(const dom::element& document) {
    dom::array rows;
    return !document["data"].get(rows);
  }

  dom::element parse(std::size_t begin, std::size_t end) {
    dom::element element;
    if (const auto error = parser_.parse(text_.data() + begin, end - begin, false).get(element)) {
      const std::string problem = text::describe_json_error(text_, begin, end);
      raise<DataError>("not valid JSON: {}",
                       problem.empty() ? simdjson::error_message(error) : problem);
    }
    return element;
  }

  void read_lines() {
    std::size_t line = 0;
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      ++line;
      if (!is_blank(std::string_view(text_).substr(begin, end - begin))) {
        lines_.push_back(line);
        add_row(parse(begin, end));
      }
      begin = end + 1;
    }
  }

  void read_document() {
    const dom::element document = parse(0, text_.size());
    dom::array rows;
    if (document.get(rows) && document["data"].get(rows)) {
      raise<DataError>(
          "expected JSON lines, a list of objects, or an object with such a list as \"data\"");
    }
    for (const dom::element row : rows) add_row(row);
    if (num_rows_ == 0) raise<DataError>("the file has no row in it");
  }

  void add_row(const dom::element& element) {
    dom::object row;
    try {
      if (element.get(row)) raise<DataError>("a row is an object, found something else");
      for (const auto& [key, value] : row) {
        Column& column = columns_[column_of(key)];
        if (column.size > num_rows_) raise<DataError>("the key \"{}\" occurs twice", key);
        writer_.add(column, value);
      }
    } catch (const DataError& error) {
      raise<DataError>("{}: {}", place(num_rows_), error.what());
    }
    ++num_rows_;
    budget_.take_values(columns_.size());  // what a row lacks is null
    for (Column& column : columns_) {
      if (column.size < num_rows_) writer_.add_null(column);
    }
  }

  std::size_t column_of(std::string_view key) {
    const auto [found, is_new] = index_.try_emplace(std::string(key), columns_.size());
    if (!is_new) return found->second;
    budget_.take_values(num_rows_);
    Column& column = columns_.emplace_back();
    column.name = key;
    column.type = name_of(Kind::kOther);
    column.size = num_rows_;
    column.valid.assign(num_rows_, 0);
    return found->second;
  }

  std::string text_;
  ReadBudget budget_;
  dom::parser parser_;
  std::deque<std::string> texts_;
  ColumnWriter writer_{texts_};
  std::vector<Column> columns_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<std::string> names_;
  std::vector<std::size_t> lines_;
  std::size_t num_rows_ = 0;
  bool given_ = false;
};

}  // namespace

std::unique_ptr<TableSource> open_json(std::string_view text) {
  return std::make_unique<JsonSource>(text);
}

}  // namespace tandem::data
