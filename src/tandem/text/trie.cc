#include "tandem/text/trie.h"

#include <algorithm>
#include <deque>

namespace tandem::text {

Trie::Trie(std::span<const std::string> vocabulary) {
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
}

// Breadth first: a node stands for a range of sorted tokens that share their first `depth` bytes.
void Trie::build(std::span<const Entry> sorted) {
  struct Range {
    std::uint32_t cell;
    std::size_t begin, end, depth;
  };
  cells_.assign(512, Cell{});
  cells_[kRoot].parent = kRoot;  // taken; no byte leads to it, since every base is at least 1
  std::deque<Range> queue = {{kRoot, 0, sorted.size(), 0}};
  std::vector<unsigned char> bytes;
  std::vector<std::size_t> starts;
  while (!queue.empty()) {
    const Range range = queue.front();
    queue.pop_front();
    std::size_t at = range.begin;
    for (; at < range.end && sorted[at].token.size() == range.depth; ++at) {
      cells_[range.cell].id = sorted[at].id;
    }
    bytes.clear();
    starts.clear();
    for (; at < range.end; ++at) {
      const auto byte = static_cast<unsigned char>(sorted[at].token[range.depth]);
      if (bytes.empty() || bytes.back() != byte) {
        bytes.push_back(byte);
        starts.push_back(at);
      }
    }
    if (bytes.empty()) continue;
    starts.push_back(range.end);
    const std::uint32_t base = find_base(bytes);
    cells_[range.cell].base = base;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      cells_[base + bytes[i]].parent = range.cell;
      queue.push_back({base + bytes[i], starts[i], starts[i + 1], range.depth + 1});
    }
  }
}

// A base whose cells for all of `bytes` are free: the first one from search_from_ on. search_from_
// moves up when nearly all cells behind it are taken (the rule of the Darts library): a few cells
// stay empty, the search stays short.
std::uint32_t Trie::find_base(std::span<const unsigned char> bytes) {
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

Trie::Node Trie::find(std::string_view text) const {
  Node node = kRoot;
  for (const char c : text) {
    node = child(node, static_cast<unsigned char>(c));
    if (node == kNone) break;
  }
  return node;
}

}  // namespace tandem::text
