// Greedy longest-match-first WordPiece over a vocabulary in a double-array trie.
//
// The trie's nodes are cells of one array. A node's child for byte c is the cell base + c, if that
// cell's `parent` says so (Aoe 1989): one dependent load per byte of text, about 1 MB for BERT's
// vocabulary. Pieces that continue a word are stored as the vocabulary spells them ("##ing"), so
// matching one starts at the node of the prefix "##".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

class WordPiece {
 public:
  // `vocabulary`[id] is a token; empty strings are ids not in use, of equal tokens the last wins.
  // `prefix` marks pieces that continue a word.
  WordPiece(std::span<const std::string> vocabulary, std::string_view prefix);

  // Cuts the word byte_at(0 … length−1) into its longest pieces from left to right and calls
  // piece(id, begin, end) for each. Returns false at the first place where no piece matches; the
  // pieces before it have been reported then.
  template <class ByteAt, class Piece>
  bool match(std::size_t length, ByteAt&& byte_at, Piece&& piece) const {
    std::uint32_t root = kRoot;
    for (std::size_t begin = 0; begin < length; root = continuation_) {
      if (root == kNone) return false;
      std::uint32_t node = root;
      std::int32_t best_id = -1;
      std::size_t best_end = begin;
      for (std::size_t at = begin; at < length; ++at) {
        const std::uint32_t child = cells_[node].base + static_cast<unsigned char>(byte_at(at));
        if (cells_[child].parent != node) break;
        node = child;
        if (cells_[node].id >= 0) {
          best_id = cells_[node].id;
          best_end = at + 1;
        }
      }
      if (best_id < 0) return false;
      piece(best_id, begin, best_end);
      begin = best_end;
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  static constexpr std::uint32_t kRoot = 0;
  struct Cell {
    std::uint32_t base = 0;  // cells[base + c] is the child for byte c, if its parent is this cell
    std::uint32_t parent = kNone;  // kNone: the cell is free
    std::int32_t id = -1;          // of the token that ends here
  };
  struct Entry {
    std::string_view token;
    std::int32_t id;
  };

  void build(std::span<const Entry> sorted);
  std::uint32_t find_base(std::span<const unsigned char> bytes);
  std::uint32_t find(std::string_view token) const;

  std::vector<Cell> cells_;  // 256 free cells at the end: base + c needs no bounds check
  std::size_t search_from_ = 1;
  std::uint32_t continuation_ = kNone;
};

}  // namespace tandem::text
