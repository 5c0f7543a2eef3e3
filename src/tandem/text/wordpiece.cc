#include "tandem/text/wordpiece.h"

#include <algorithm>
#include <deque>

namespace tandem::text {

WordPiece::WordPiece(std::span<const std::string> vocabulary, std::string_view prefix) {
  std::vector<Entry> entries;
  entries.reserve(vocabulary.size());
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary[id].empty()) entries.push_back({vocabulary[id], static_cast<std::int32_t>(id)});
  }
  // char_traits<char> compares bytes as unsigned, which is the order in which the trie lays out
  // children.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.token != b.token ? a.token < b.token : a.id < b.id;
  });
  build(entries);
  continuation_ = find(prefix);
}

// Breadth first: a node stands for a range of sorted tokens that share their first `depth` bytes.
void WordPiece::build(std::span<const Entry> sorted) {
  struct Node {
    std::uint32_t cell;
    std::size_t begin, end, depth;
  };
  cells_.assign(512, Cell{});
  cells_[kRoot].parent = kRoot;  // taken; no byte leads to it, since every base is at least 1
  std::deque<Node> queue = {{kRoot, 0, sorted.size(), 0}};
  std::vector<unsigned char> bytes;
  std::vector<std::size_t> starts;
  while (!queue.empty()) {
    const Node node = queue.front();
    queue.pop_front();
    std::size_t at = node.begin;
    for (; at < node.end && sorted[at].token.size() == node.depth; ++at) {
      cells_[node.cell].id = sorted[at].id;
    }
    bytes.clear();
    starts.clear();
    for (; at < node.end; ++at) {
      const auto byte = static_cast<unsigned char>(sorted[at].token[node.depth]);
      if (bytes.empty() || bytes.back() != byte) {
        bytes.push_back(byte);
        starts.push_back(at);
      }
    }
    if (bytes.empty()) continue;
    starts.push_back(node.end);
    const std::uint32_t base = find_base(bytes);
    cells_[node.cell].base = base;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      cells_[base + bytes[i]].parent = node.cell;
      queue.push_back({base + bytes[i], starts[i], starts[i + 1], node.depth + 1});
    }
  }
}

// A base whose cells for all of `bytes` are free: the first one from search_from_ on. search_from_
// moves up when nearly all cells behind it are taken (the rule of the Darts library): a few cells
// stay empty, the search stays short.
std::uint32_t WordPiece::find_base(std::span<const unsigned char> bytes) {
  const auto is_free = [&](std::size_t cell) { return cells_[cell].parent == kNone; };
  std::size_t taken = 0;
  for (std::size_t first = std::max<std::size_t>(search_from_, bytes[0] + 1u);; ++first) {
    if (first + 512 > cells_.size()) cells_.resize(cells_.size() * 2);
    if (!is_free(first)) {
      ++taken;
      continue;
    }
    const std::size_t base = first - bytes[0];
    if (!std::all_of(bytes.begin(), bytes.end(),
                     [&](unsigned char b) { return is_free(base + b); })) {
      continue;
    }
    if (taken * 20 >= (first - search_from_ + 1) * 19) search_from_ = first;
    return static_cast<std::uint32_t>(base);
  }
}

std::uint32_t WordPiece::find(std::string_view token) const {
  std::uint32_t node = kRoot;
  for (const char c : token) {
    const std::uint32_t child = cells_[node].base + static_cast<unsigned char>(c);
    if (cells_[child].parent != node) return kNone;
    node = child;
  }
  return node;
}

}  // namespace tandem::text
