// The samples of language models: pieces of a corpus, on the heap or in a file that is
// mapped. A corpus may be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tandem/tasks/stored_array.h"
#include "tandem/tasks/token_sequences.h"

namespace tandem::corpus {

// The tokens of one sample. The three arrays have one entry per token.
struct TextPiece {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> special;      // 1: the tokenizer put it around a text; never chosen
  std::vector<std::uint8_t> word_begins;  // 1: first token of a word
};

// A token as pieces are stored: its id, and what else is known of it, in 32 bits.
struct StoredToken {
  static constexpr std::uint32_t kSpecial = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kWordBegin = std::uint32_t{1} << 30;
  static constexpr std::uint32_t kIdMask = kWordBegin - 1;
};

// How many rows and tokens became pieces.
struct PieceCounts {
  std::uint64_t rows = 0;            // that were read
  std::uint64_t blank_rows = 0;      // rows without text, left out by --line_by_line
  std::uint64_t cut_rows = 0;        // longer than a piece, which --line_by_line cuts
  std::uint64_t dropped_tokens = 0;  // cut off, or the rest of 1,000 joined rows
};

// Constant once made. Any number of threads may read. Copies share the memory.
class TextPieces final : public tasks::TokenSequences {
 public:
  TextPieces() = default;

  std::size_t size() const override { return static_cast<std::size_t>(num_pieces_); }
  std::size_t num_real_tokens(std::size_t i) const override {
    return static_cast<std::size_t>(end(i) - begin(i));
  }
  std::size_t max_seq_length() const override { return static_cast<std::size_t>(max_seq_length_); }
  std::int32_t pad_token_id() const override { return pad_token_id_; }
  // The tokens of piece i; all types are 0.
  void append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& types) const override;
  void release() const override;
  // Piece i, into memory that is reused.
  void read(std::size_t i, TextPiece& piece) const;
  TextPiece piece(std::size_t i) const;

  // Whether piece i has a token that is not special.
  bool has_text(std::size_t i) const;

  std::uint64_t num_tokens() const { return num_pieces_ == 0 ? 0 : end(size() - 1); }
  const PieceCounts& counts() const { return counts_; }
  // The first `count` pieces; all of them if there are fewer.
  TextPieces first(std::uint64_t count) const;

  // For files of features (feature_file.h).
  template <class Set, class Visit>
  static void each_field(Set& set, Visit&& visit) {
    visit(set.tokens_);
    visit(set.ends_);
    visit(set.num_pieces_);
    visit(set.max_seq_length_);
    visit(set.pad_token_id_);
    visit(set.counts_);
  }

 private:
  friend class PieceStore;
  std::uint64_t begin(std::size_t i) const { return i == 0 ? 0 : end(i - 1); }
  std::uint64_t end(std::size_t i) const {
    return ends_.size() == 0 ? (i + 1) * max_seq_length_ : ends_[i];
  }

  tasks::StoredArray<std::uint32_t> tokens_;  // StoredToken, of all pieces
  tasks::StoredArray<std::uint64_t> ends_;    // ends of each piece; none: all have max_seq_length
  std::uint64_t num_pieces_ = 0;
  std::uint64_t max_seq_length_ = 0;
  std::int32_t pad_token_id_ = 0;
  PieceCounts counts_;
};

}  // namespace tandem::corpus
