// Byte pair encoding over bytes (Sennrich et al. 2016; GPT-2's byte level): a word starts as its
// bytes, and the neighbours whose merge has the lowest rank become one, again and again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/trie.h"

namespace tandem::text {

// The printable character that stands for a byte in vocabularies: itself for 33 … 126, 161 … 172
// and 174 … 255, for the other 68 in order U+0100, U+0101, …
char32_t byte_symbol(unsigned char byte);

// Immutable, so thread-safe.
class Bpe {
 public:
  // The ids of both parts of a merge and of its result. Its rank is its place in the list.
  struct Merge {
    std::int32_t left, right, result;
  };
  // A piece of a word: [end of the one before, end) in bytes.
  struct Piece {
    std::int32_t id;
    std::uint32_t end;
  };
  // Scratch, and the result in `pieces`.
  struct Work {
    struct Symbol {
      std::int32_t id;
      std::int32_t previous, next;  // −1: none
      std::uint32_t size;           // bytes; 0: became a part of another
    };
    struct Candidate {
      std::uint32_t rank, position;
      std::int32_t result;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::vector<Piece> pieces;
  };

  // vocabulary[id] is a token in symbols of bytes; "" where an id is not in use. byte_ids[b] is the
  // token of the one byte b. Of merges with equal parts the last counts. whole_words: a word that
  // is a token is never split (ignore_merges of tokenizer.json).
  Bpe(std::span<const std::string> vocabulary, const std::array<std::int32_t, 256>& byte_ids,
      std::span<const Merge> merges, bool whole_words);

  // Overwrites work.pieces by the pieces of a word (bytes of a text). Time n log n for n bytes.
  void encode(std::string_view word, Work& work) const;
  // The same by the definition, in quadratic time: the oracle of the tests.
  void encode_reference(std::string_view word, Work& work) const;

 private:
  struct Rule {
    std::int32_t right;
    std::uint32_t rank;
    std::int32_t result;
  };
  const Rule* find_rule(std::int32_t left, std::int32_t right) const;
  void add_rules(std::span<const Merge> merges, std::size_t num_ids);
  void merge(std::string_view word, Work& work) const;
  void push_candidate(Work& work, std::int32_t position) const;
  void take(Work& work, std::int32_t position, std::int32_t result) const;

  std::array<std::int32_t, 256> byte_ids_;
  std::vector<std::uint32_t> rules_begin_;  // [left id]: where its rules begin in rules_
  std::vector<Rule> rules_;                 // by left, then right
  std::vector<std::string> words_;  // [id]: bytes of the tokens that are a word's only piece
  Trie word_trie_;
};

}  // namespace tandem::text
