#include "tandem/formats/csv_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <string>

#include "tandem/core/error.h"
#include "tandem/core/text_file.h"

namespace tandem::formats {
namespace {

constexpr std::size_t kRowsPerTable = 1024;

struct CsvField {
  std::string_view text;
  bool quoted = false;
};

class CsvSource final : public TableSource {
 public:
  CsvSource(std::string_view text, bool tabs)
      : text_(without_byte_order_mark(text)), tabs_(tabs), field_ends_(tabs ? "\t\r\n" : ",\r\n") {
    if (!next_record()) raise<DataError>("the file is empty");
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      require_utf8(fields_[i].text, [&] { return fmt::format("column {} of the header", i + 1); });
      names_.emplace_back(fields_[i].text);
    }
  }

  std::span<const std::string> column_names() const override { return names_; }

  bool next(std::span<const std::size_t> columns, Table& table) override {
    table = {};
    unquoted_.clear();
    lines_.clear();
    num_rows_before_ += num_rows_in_table_;
    num_rows_in_table_ = 0;
    for (const std::size_t i : columns) {
      Column& column = table.columns.emplace_back();
      column.name = names_[i];
      column.type = "text";
      column.kind = Column::Kind::kText;
    }
    while (table.num_rows < kRowsPerTable && next_record()) {
      if (fields_.size() != names_.size()) {
        raise<DataError>("{}: {} fields, but the header has {}: {}; {}", location(table.num_rows),
                         fields_.size(), names_.size(), fmt::join(names_, ", "),
                         tabs_ ? "no field may hold a tab or a line break"
                               : "fields with commas or line breaks need double quotes");
      }
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const CsvField& field = fields_[columns[c]];
        Column& column = table.columns[c];
        require_utf8(field.text, [&] {
          return fmt::format("{}, column \"{}\"", location(table.num_rows), column.name);
        });
        column.texts.push_back(field.text);
        column.valid.push_back(field.quoted || !field.text.empty() ? 1 : 0);
        ++column.size;
      }
      lines_.push_back(record_line_);
      num_rows_in_table_ = ++table.num_rows;
    }
    return table.num_rows > 0;
  }

  std::string location(std::size_t row) const override {
    return fmt::format("row {} (line {})", num_rows_before_ + row + 1, line(row));
  }

  // The row behind the table's last is the one being read.
  std::size_t line(std::size_t row) const override {
    return row < lines_.size() ? lines_[row] : record_line_;
  }

 private:
  bool at_line_break() const {
    return position_ < text_.size() && (text_[position_] == '\n' || text_[position_] == '\r');
  }

  void skip_line_break() {
    const bool two = text_.substr(position_).starts_with("\r\n");
    position_ += two ? 2 : 1;
    ++line_;
  }

  // The fields of the next record that is not blank.
  bool next_record() {
    while (at_line_break()) skip_line_break();
    if (position_ >= text_.size()) return false;
    record_line_ = line_;
    fields_.clear();
    while (true) {
      fields_.push_back(next_field());
      if (position_ >= text_.size()) return true;
      if (at_line_break()) {
        skip_line_break();
        return true;
      }
      ++position_;  // the comma or tab
    }
  }

  CsvField next_field() {
    if (!tabs_ && position_ < text_.size() && text_[position_] == '"') return quoted_field();
    const std::size_t end = std::min(text_.find_first_of(field_ends_, position_), text_.size());
    const std::string_view field = text_.substr(position_, end - position_);
    position_ = end;
    return {field, false};
  }

  [[noreturn]] void fail(std::string_view problem) const {
    const bool header = names_.empty();
    const std::size_t column = fields_.size();
    raise<DataError>("{}, column {}: {}",
                     header ? "the header" : fmt::format("{}", location(num_rows_in_table_)),
                     header || column >= names_.size() ? std::to_string(column + 1)
                                                       : "\"" + names_[column] + "\"",
                     problem);
  }

  // "…""…": doubled quotes stand for one, everything else for itself.
  CsvField quoted_field() {
    const std::size_t begin = ++position_;
    bool doubled = false;
    while (true) {
      const std::size_t quote = text_.find('"', position_);
      if (quote == std::string_view::npos) fail("the quote that opens the field is never closed");
      position_ = quote + 1;
      if (position_ >= text_.size() || text_[position_] != '"') break;
      doubled = true;
      ++position_;
    }
    const std::string_view raw = text_.substr(begin, position_ - 1 - begin);
    count_lines(raw);
    if (position_ < text_.size() && text_[position_] != ',' && !at_line_break()) {
      fail("text behind the closing quote; quotes inside of a field must be doubled");
    }
    return {doubled ? undouble(raw) : raw, true};
  }

  void count_lines(std::string_view raw) {
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] == '\n' || (raw[i] == '\r' && !raw.substr(i).starts_with("\r\n"))) ++line_;
    }
  }

  std::string_view undouble(std::string_view raw) {
    std::string& text = unquoted_.emplace_back();
    text.reserve(raw.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      text += raw[i];
      if (raw[i] == '"') ++i;
    }
    return text;
  }

  std::string_view text_;
  bool tabs_;
  std::string_view field_ends_;
  std::size_t position_ = 0;
  std::size_t line_ = 1, record_line_ = 1;
  std::size_t num_rows_before_ = 0, num_rows_in_table_ = 0;
  std::vector<std::string> names_;
  std::vector<CsvField> fields_;      // fields of the record being read
  std::vector<std::size_t> lines_;    // line numbers of the table's rows
  std::deque<std::string> unquoted_;  // texts of the table that held doubled quotes
};

}  // namespace

std::unique_ptr<TableSource> open_csv(std::string_view text) {
  return std::make_unique<CsvSource>(text, /*tabs=*/false);
}

std::unique_ptr<TableSource> open_tsv(std::string_view text) {
  return std::make_unique<CsvSource>(text, /*tabs=*/true);
}

}  // namespace tandem::formats
