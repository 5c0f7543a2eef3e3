#include "tandem/tasks/corpus/text_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/mappings.h"
#include "tandem/core/text_file.h"
#include "tandem/data/read_rows.h"
#include "tandem/formats/compressed_file.h"
#include "tandem/formats/table.h"

namespace tandem::corpus {
namespace {

namespace fs = std::filesystem;
using formats::Column;

constexpr std::string_view kLines = ".txt";
// Tokenizing a row takes about fifty times its bytes.
constexpr std::size_t kMaxRowBytes = std::size_t{64} << 20;
// Pages of a file that were read are released in stretches of so many bytes.
constexpr std::size_t kKeptBytes = std::size_t{4} << 20;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The lines of a text, one after the other. Python reads text files with all three line breaks.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  bool at_end() const { return position_ == text_.size(); }
  std::size_t position() const { return position_; }
  // The line without its break. Precondition: not at the end.
  std::string_view next() {
    const std::size_t begin = position_;
    // Found once per line feed, for a file may have none.
    if (feed_ < position_ || position_ == 0)
      feed_ = std::min(text_.find('\n', position_), text_.size());
    const std::string_view stretch = text_.substr(position_, feed_ - position_);
    const std::string_view line = stretch.substr(0, stretch.find('\r'));
    position_ = std::min(position_ + line.size() + 1, text_.size());
    if (line.size() < stretch.size() && position_ == feed_ && feed_ < text_.size()) ++position_;
    break_ = text_.substr(begin + line.size(), position_ - begin - line.size());
    return line;
  }
  // The break behind the last line; empty at the end of a text without one.
  std::string_view line_break() const { return break_; }

 private:
  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t feed_ = 0;  // the first line feed that was not passed
  std::string_view break_;
};

}  // namespace

std::span<const std::string_view> text_file_extensions() {
  static const std::vector<std::string_view> extensions = [] {
    std::vector<std::string_view> all{kLines};
    const auto others = data::row_file_extensions();
    all.insert(all.end(), others.begin(), others.end());
    return all;
  }();
  return extensions;
}

// One file; rows are counted from its first one.
class TextRows::File {
 public:
  virtual ~File() = default;
  // Appends at least one row, and further ones while there are fewer than `bytes` bytes; false at
  // the end.
  virtual bool next(std::vector<std::string_view>& texts, std::size_t bytes) = 0;
  // "line 17" of a row of the last block.
  virtual std::string location(std::uint64_t row) const = 0;
  // Reads to the end; how many rows there were.
  virtual std::uint64_t count() = 0;
};

class TextRows::LineFile final : public File {
 public:
  LineFile(const fs::path& path, LineBreaks breaks)
      : file_(formats::map_uncompressed(path)), breaks_(breaks), lines_(as_text(file_.bytes())) {
    // Refuses UTF-16. A mark of UTF-8 stays: it is a part of the first row in `datasets`, too.
    without_byte_order_mark(as_text(file_.bytes()));
  }

  bool next(std::vector<std::string_view>& texts, std::size_t bytes) override {
    if (lines_.at_end()) return false;
    const std::size_t begin = lines_.position();
    release_before(begin);
    altered_.clear();
    do {
      texts.push_back(row(lines_.next()));
    } while (!lines_.at_end() && lines_.position() - begin < bytes);
    return true;
  }

  std::string location(std::uint64_t row) const override { return fmt::format("line {}", row + 1); }

  std::uint64_t count() override {
    std::uint64_t rows = 0;
    for (; !lines_.at_end(); ++rows) {
      lines_.next();
      release_before(lines_.position());
    }
    return rows;
  }

 private:
  std::string_view row(std::string_view line) {
    const std::string_view end = lines_.line_break();
    if (breaks_ == LineBreaks::kLeftOut || end.empty()) return line;
    if (end == "\n") return {line.data(), line.size() + 1};
    return altered_.emplace_back(line).append("\n");
  }
  void release_before(std::size_t position) {
    if (position - released_ < kKeptBytes) return;
    release_pages(file_.bytes().subspan(released_, position - released_));
    released_ = position;
  }

  const MappedFile file_;
  const LineBreaks breaks_;
  Lines lines_;
  std::size_t released_ = 0;         // the pages of so many bytes are not kept in memory
  std::deque<std::string> altered_;  // rows of the last block that the file has with other breaks
};

class TextRows::TableFile final : public File {
 public:
  // `column`: the name to read; empty: it is chosen and stored there.
  TableFile(const fs::path& path, std::string& column)
      : file_(formats::map_uncompressed(path)), source_(data::open_row_file(path, file_.bytes())) {
    const auto names = source_->column_names();
    if (names.empty()) raise<DataError>("found no column, expected a column \"text\"");
    const std::string wanted = column.empty() ? "text" : column;
    auto found = std::find(names.begin(), names.end(), wanted);
    if (found == names.end() && !column.empty()) {
      raise<DataError>("found no column \"{}\", which the files before it have", column);
    }
    if (found == names.end()) found = names.begin();
    column = *found;
    index_ = {static_cast<std::size_t>(found - names.begin())};
  }

  bool next(std::vector<std::string_view>& texts, std::size_t bytes) override {
    if (used_ == table_.num_rows && !next_table()) return false;
    const Column& column = table_.columns.front();
    for (std::size_t taken = 0; used_ < table_.num_rows; ++used_) {
      if (!texts.empty() && taken >= bytes) break;
      if (column.kind == Column::Kind::kOther || column.is_null(used_)) {
        raise<DataError>("{}: column \"{}\": the text is missing; leave out such rows",
                         source_->location(used_), column.name);
      }
      texts.push_back(column.texts[used_]);
      taken += texts.back().size();
    }
    return true;
  }

  std::string location(std::uint64_t row) const override {
    return source_->location(static_cast<std::size_t>(row - table_begin_));
  }

  std::uint64_t count() override {
    std::uint64_t rows = 0;
    while (next_table()) rows += table_.num_rows;
    return rows;
  }

 private:
  bool next_table() {
    table_begin_ += table_.num_rows;
    used_ = 0;
    do {
      if (!source_->next(index_, table_)) {
        table_ = {};
        return false;
      }
    } while (table_.num_rows == 0);
    const Column& column = table_.columns.front();
    for (const std::string_view text : column.texts) read_ += text.size();
    if (read_ >= kKeptBytes) {
      release_pages(file_.bytes());
      read_ = 0;
    }
    const bool texts = column.kind == Column::Kind::kText;
    if (!texts && (column.kind != Column::Kind::kOther || column.is_unreadable())) {
      raise<DataError>("{}: column \"{}\" has the type {}, expected text", source_->location(0),
                       column.name, column.type);
    }
    return true;
  }

  const MappedFile file_;
  std::unique_ptr<formats::TableSource> source_;
  std::array<std::size_t, 1> index_{};
  formats::Table table_;
  std::uint64_t table_begin_ = 0;  // the first row of the table
  std::size_t used_ = 0;           // rows of the table that were given
  std::size_t read_ = 0;           // bytes of texts since pages were released
};

// Adds the file's name to the error.
template <class Read>
auto TextRows::in_file(Read&& read) const {
  try {
    return read();
  } catch (const DataError& error) {
    raise<DataError>("data file '{}': {}", files_[next_file_ - 1].string(), error.what());
  }
}

TextRows::TextRows(std::span<const fs::path> files, std::string column, LineBreaks breaks)
    : files_(files.begin(), files.end()), column_(std::move(column)), breaks_(breaks) {
  TANDEM_CHECK(!files_.empty(), "no file to read");
  open_next();
}

TextRows::~TextRows() = default;

bool TextRows::open_next() {
  if (next_file_ == files_.size()) return false;
  const fs::path& path = files_[next_file_++];
  in_file([&] {
    if (formats::format_ending(path) == kLines) {
      file_ = std::make_unique<LineFile>(path, breaks_);
    } else {
      file_ = std::make_unique<TableFile>(path, column_);
    }
  });
  file_begin_ = next_row_;
  return true;
}

bool TextRows::next(RowBlock& block, std::size_t bytes) {
  block.texts.clear();
  while (file_ || open_next()) {
    if (in_file([&] { return file_->next(block.texts, bytes); })) break;
    file_.reset();
  }
  block.first_row = next_row_;
  next_row_ += block.texts.size();
  for (std::size_t i = 0; i < block.texts.size(); ++i) {
    if (block.texts[i].size() <= kMaxRowBytes) continue;
    raise<DataError>("{}: found a text of {} bytes, expected at most {}; break it into rows",
                     location(block.first_row + i), block.texts[i].size(), kMaxRowBytes);
  }
  if (next_row_ == 0) raise<DataError>("data file '{}': the file has no row in it", first_name());
  return !block.texts.empty();
}

std::uint64_t TextRows::count() {
  do {
    next_row_ += in_file([&] { return file_->count(); });
  } while (open_next());
  if (next_row_ == 0) raise<DataError>("data file '{}': the file has no row in it", first_name());
  return next_row_;
}

std::string TextRows::location(std::uint64_t row) const {
  return fmt::format("data file '{}', {}", files_[next_file_ - 1].string(),
                     file_->location(row - file_begin_));
}

// datasets: int(round(boundary * num_examples / 100.0)), and Python rounds half to even, as
// nearbyint does in the mode that programs begin in.
SplitRows split_rows(std::uint64_t num_rows, std::uint32_t percent) {
  TANDEM_CHECK(percent <= 100, "more than 100 %");
  const double rounded = std::nearbyint(static_cast<double>(percent * num_rows) / 100.0);
  const std::uint64_t boundary = std::min(num_rows, static_cast<std::uint64_t>(rounded));
  return {.validation = {0, boundary}, .train = {boundary, num_rows}};
}

}  // namespace tandem::corpus
