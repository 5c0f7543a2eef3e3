// Makes pieces of tokenized rows, one row after the other. Internal to corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/tasks/corpus/text_pieces.h"
#include "tandem/tasks/corpus/text_rows.h"
#include "tandem/tasks/feature_file.h"
#include "tandem/text/tokenizer.h"

namespace tandem::corpus {

struct PieceOptions {
  std::size_t max_seq_length = 0;
  bool line_by_line = false;
  // Blocks of run_clm: joined rows with the special tokens that a decoder's tokenizer adds, which
  // may be none. Rows that were joined make at least one block.
  bool blocks = false;
  std::string_view part = "train";  // for errors
};

// Rows whose tokens were joined before they were cut: the batch of datasets' map().
inline constexpr std::uint64_t kJoinedRows = 1000;

// Where the pieces of one part of a corpus go: onto the heap, or as the next fields into a file. A
// file keeps no token in memory; with line_by_line it keeps eight bytes a piece until finish().
class PieceStore {
 public:
  // `file` outlives the store; null: the heap. Throws ConfigError when max_seq_length has no room
  // in addition to the special tokens, and DataError for a decoder's tokenizer unless `blocks`.
  PieceStore(const text::Tokenizer& tokenizer, const PieceOptions& options,
             tasks::FeatureFileWriter* file);

  // The tokens of the next row with its special tokens, as StoredToken. Throws IoError, and
  // DataError for joined rows that are less than a block.
  void add_row(std::span<const std::uint32_t> tokens);
  void add_blank_row();
  void count_cut(std::size_t dropped_tokens);
  // After the last row. With a file only the fields are written: the pieces have no tokens. Throws
  // as add_row().
  TextPieces finish();

 private:
  void add_joined(std::span<const std::uint32_t> tokens);
  void write(std::span<const std::uint32_t> tokens);
  void end_joined_rows();

  PieceOptions options_;
  tasks::FeatureFileWriter* file_;
  TextPieces pieces_;
  std::vector<std::uint32_t> heap_;  // without a file
  std::vector<std::uint32_t> rest_;  // joined tokens that are not a whole piece yet
  std::vector<std::uint64_t> ends_;  // ends of the pieces with line_by_line
  std::uint64_t num_tokens_ = 0;
  std::uint64_t joined_begin_ = 0;  // num_tokens_ at the first of the joined rows
};

// Tokenizes the rows in parallel and adds those in `range` to the store, in order. The result is
// the same for any number of threads. Returns how many rows there are up to the end of the range.
// Throws DataError that names the row.
std::uint64_t add_rows(TextRows& rows, RowRange range, const text::Tokenizer& tokenizer,
                       const PieceOptions& options, ThreadPool& threads, PieceStore& store);

}  // namespace tandem::corpus
