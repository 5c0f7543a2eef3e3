// Greedy longest-match-first WordPiece over a vocabulary in a trie (trie.h). Pieces that continue a
// word are stored as the vocabulary spells them ("##ing"), so matching one starts at the node of
// the prefix "##".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tandem/text/trie.h"

namespace tandem::text {

class WordPiece {
 public:
  // `vocabulary` as Trie takes it. `prefix` marks pieces that continue a word.
  WordPiece(std::span<const std::string> vocabulary, std::string_view prefix)
      : trie_(vocabulary), continuation_(trie_.find(prefix)) {}

  // Cuts the word byte_at(0 … length−1) into its longest pieces from left to right and calls
  // piece(id, begin, end) for each. Returns false at the first place where no piece matches; the
  // pieces before it have been reported then.
  template <class ByteAt, class Piece>
  bool match(std::size_t length, ByteAt&& byte_at, Piece&& piece) const {
    Trie::Node root = Trie::kRoot;
    for (std::size_t begin = 0; begin < length; root = continuation_) {
      if (root == Trie::kNone) return false;
      Trie::Node node = root;
      std::int32_t best_id = -1;
      std::size_t best_end = begin;
      for (std::size_t at = begin; at < length; ++at) {
        node = trie_.child(node, static_cast<unsigned char>(byte_at(at)));
        if (node == Trie::kNone) break;
        if (trie_.id(node) >= 0) {
          best_id = trie_.id(node);
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
  Trie trie_;
  Trie::Node continuation_;
};

}  // namespace tandem::text
