// A vocabulary as a double-array trie over bytes.
//
// The trie's nodes are cells of one array. A node's child for byte c is the cell base + c, if that
// cell's `parent` is the node (Aoe 1989): one dependent load per byte of text, about 1 MB for
// BERT's vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

// Immutable, so thread-safe.
class Trie {
 public:
  using Node = std::uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = 0xffffffffu;

  // `vocabulary`[id] is a token; empty strings are ids not in use, of equal tokens the last wins.
  explicit Trie(std::span<const std::string> vocabulary);

  // The node that byte c leads to from a node other than kNone, or kNone.
  Node child(Node node, unsigned char c) const {
    const Node next = cells_[node].base + c;
    return cells_[next].parent == node ? next : kNone;
  }
  // The token that ends at a node other than kNone; −1: none.
  std::int32_t id(Node node) const { return cells_[node].id; }

  // The node that all of `text` leads to, or kNone.
  Node find(std::string_view text) const;

 private:
  struct Cell {
    std::uint32_t base = 0;  // cells[base + c] is the child for byte c, if its parent is this cell
    std::uint32_t parent = kNone;  // kNone: the cell is free
    std::int32_t id = -1;          // id of the token that ends here
  };
  struct Entry {
    std::string_view token;
    std::int32_t id;
  };

  void build(std::span<const Entry> sorted);
  std::uint32_t find_base(std::span<const unsigned char> bytes);

  std::vector<Cell> cells_;  // 256 free cells at the end: base + c needs no bounds check
  std::size_t search_from_ = 1;
};

}  // namespace tandem::text
