// The unigram language model (Kudo 2018): of all ways to cut a text into tokens of the vocabulary
// the one with the greatest sum of scores (Viterbi 1967).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/trie.h"

namespace tandem::text {

// Immutable, so thread-safe.
class Unigram {
 public:
  // No token may be longer: time is the text's bytes times the longest token's at most.
  static constexpr std::size_t kMostTokenBytes = 512;

  // [begin of the one before, end) in bytes.
  struct Piece {
    std::int32_t id;
    std::uint32_t end;
  };
  // Scratch, and the result in `pieces`.
  struct Work {
    struct PathNode {  // the best path that ends at a byte
      double score;
      std::uint32_t begin;  // begin of its last token
      std::int32_t id;      // −1: no path
    };
    std::vector<PathNode> nodes;
    std::vector<Piece> pieces;
  };

  // scores[id] is that of vocabulary[id]; ids as Trie takes them.
  Unigram(std::span<const std::string> vocabulary, std::span<const double> scores,
          std::int32_t unk_id);

  // Overwrites work.pieces by those of `text`, valid UTF-8. A character that no token covers costs
  // ten more than the least score; neighbours of that kind become one unknown token.
  void encode(std::string_view text, Work& work) const;
  // The same, looking every part of the text up, in time at least the square of its length: the
  // oracle of the tests.
  void encode_reference(std::string_view text, Work& work) const;

 private:
  void offer(Work& work, std::size_t begin, std::size_t end, std::int32_t id, double score) const;
  void collect(std::string_view text, Work& work) const;

  Trie trie_;
  std::vector<double> scores_;
  std::int32_t unk_id_;
  double unk_score_;
};

}  // namespace tandem::text
