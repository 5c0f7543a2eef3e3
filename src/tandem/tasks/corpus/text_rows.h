// The rows of text of a corpus, block by block: files larger than memory are mapped and never read
// whole. Rows are those of `datasets`, so that pieces and splits equal the official script's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::corpus {

// .txt, and what data::row_file_extensions() lists.
std::span<const std::string_view> text_file_extensions();

// Some rows that follow each other. Views are valid until the next call of TextRows::next().
struct RowBlock {
  std::uint64_t first_row = 0;  // counted over all files of the set
  std::vector<std::string_view> texts;
};

// Whether the rows of a .txt file keep their line breaks, as "\n". Rows of other files have none.
enum class LineBreaks : std::uint8_t { kLeftOut, kKept };

// A half-open range of rows.
struct RowRange {
  std::uint64_t begin = 0;
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
};

// Reads files that are parts of one set, one after the other. Used by one thread; place() by any.
//   .txt     a row per line, which ends in \n, \r\n or \r; blank lines are rows
//   others   a column of texts; a null is an error
// Throws DataError that names the file, and the row where there is one: UTF-16, what the readers of
// tables refuse, a missing column, a missing text, a text of more than 64 MiB, no row in all
// files. Bytes of a .txt file that are not UTF-8 are left to the tokenizer. Throws IoError if a
// file cannot be read.
class TextRows {
 public:
  // `column` of files with columns; empty: "text" if the first one has it, else its first column.
  // Opens the first file.
  explicit TextRows(std::span<const std::filesystem::path> files, std::string column = {},
                    LineBreaks breaks = LineBreaks::kLeftOut);
  ~TextRows();
  TextRows(const TextRows&) = delete;
  TextRows& operator=(const TextRows&) = delete;

  // The rows that come next, about `bytes` bytes of text or fewer, but at least one row. False:
  // there are no more.
  bool next(RowBlock& block, std::size_t bytes);
  // Instead of next(): reads all files, and returns the number of their rows.
  std::uint64_t count();
  // The column that texts come from; empty while all files were .txt.
  const std::string& column() const { return column_; }
  // For an error about a row of the last block: "data file 'train.txt', line 17".
  std::string location(std::uint64_t row) const;

 private:
  class File;
  class LineFile;
  class TableFile;
  bool open_next();
  template <class Read>
  auto in_file(Read&& read) const;
  std::string first_name() const { return files_.front().string(); }

  std::vector<std::filesystem::path> files_;
  std::size_t next_file_ = 0;
  std::unique_ptr<File> file_;
  std::uint64_t file_begin_ = 0;  // the first row of the file
  std::uint64_t next_row_ = 0;
  std::string column_;
  LineBreaks breaks_;
};

// Result of --validation_split_percentage on a training part without a validation part: its first
// rows validate, the others train. The boundary is rounded as `datasets` rounds train[:5%], half to
// even. percent <= 100.
struct SplitRows {
  RowRange validation, train;
};
SplitRows split_rows(std::uint64_t num_rows, std::uint32_t percent);

}  // namespace tandem::corpus
