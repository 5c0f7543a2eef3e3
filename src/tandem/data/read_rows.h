// Reads the rows of data files whatever their format: what tasks other than question answering make
// examples of. A row has named columns of texts, numbers, truth values, and lists of these.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/formats/table.h"

namespace tandem::data {

// The endings of the files that read_rows() can read, with their dots.
std::span<const std::string_view> row_file_extensions();
// Whether a file's name ends with one of them.
bool is_row_file(const std::filesystem::path& path);

struct RowOptions {
  // The columns to read, of all names in file order; none given: all. A name that the file lacks is
  // an error; a column that only later files lack, too.
  std::function<std::vector<std::string>(std::span<const std::string> names)> choose = {};
  // How many rows the files hold together, where that is known from elsewhere: another number is an
  // error.
  std::optional<std::size_t> num_rows = std::nullopt;
};

// All rows of a part of a data set, in memory. Movable; texts live as long as the set (or what it
// was moved to). Reading is thread-safe.
class Rows {
 public:
  Rows();
  ~Rows();
  Rows(Rows&&) noexcept;
  Rows& operator=(Rows&&) noexcept;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // All names of the first file, in file order, read or not.
  std::span<const std::string> file_columns() const { return file_columns_; }
  // Those that were chosen, in the order of the choice.
  std::span<const formats::Column> columns() const { return columns_; }
  // Null if no column has this name.
  const formats::Column* find(std::string_view name) const;
  // The column of this name; throws DataError if it is missing or has no texts.
  const formats::Column& texts(std::string_view name) const;
  // The first file's name.
  const std::string& file() const { return parts_.front().file; }
  // For an error about a row: "'train.csv', row 17 (line 18)".
  std::string location(std::size_t row) const;
  // True if the format has texts only (CSV, TSV): infer_type() may then find their types.
  bool untyped() const { return untyped_; }
  // The names of the classes whose numbers are in a column (or in its lists), where the file's
  // schema has them (ClassLabel of `datasets`); empty: none.
  std::vector<std::string> class_names(std::string_view column) const;

 private:
  friend class RowCollector;
  struct Storage;
  struct Part {
    std::string file;
    std::size_t begin = 0;  // the first row
  };
  std::unique_ptr<Storage> storage_;  // storage of the texts
  std::size_t size_ = 0;
  std::vector<std::string> file_columns_;
  std::vector<formats::Column> columns_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> lines_;  // per row; empty: the formats have no lines
  std::string schema_;                // schema of `datasets`, JSON
  bool untyped_ = false;
};

// The rows of several files that are parts of one set, one file after the other: the shards of a
// data set. At least one path. The ending of a name decides what a file is:
//   .csv, .tsv        csv_source.h
//   .json, .jsonl     json_source.h
//   .parquet, .arrow  parquet_file.h, arrow_stream.h
// .gz or .zst may follow: a compressed file is read as its content (compressed_file.h).
// Throws DataError that names the file and the row: what the readers throw, files that disagree
// about a column's type, no row at all, an ending that is not known. Throws IoError if a file
// cannot be read.
Rows read_rows(std::span<const std::filesystem::path> paths, const RowOptions& options = {});

// The rows of one file as tables, for a file that may be larger than memory: JSON lines come in
// parts of some megabytes, CSV, Arrow and Parquet as they do otherwise. `content` must outlive the
// source. The ending of the name decides what the file is, as above. Throws DataError, without the
// file's name.
std::unique_ptr<formats::TableSource> open_row_file(const std::filesystem::path& path,
                                                    std::span<const std::byte> content);

// Rows of an uncompressed file that is in memory. `name` stands in messages, and its ending decides
// what the file is. `content` needs to live only during the call.
Rows read_rows(std::string_view name, std::span<const std::byte> content,
               const RowOptions& options = {});

// A text column of a file without types becomes what its values are, as pandas reads them: integers
// when all are, numbers when all are, truth values when all are True or False (also true, TRUE);
// text otherwise. Empty cells stay null. Columns of other kinds are left alone.
void infer_type(formats::Column& column);

}  // namespace tandem::data
