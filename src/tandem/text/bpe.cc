#include "tandem/text/bpe.h"

#include <algorithm>
#include <numeric>

#include "tandem/core/interruption.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

bool is_its_own_symbol(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

std::array<char32_t, 256> all_byte_symbols() {
  std::array<char32_t, 256> symbols;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte)
    symbols[byte] = is_its_own_symbol(byte) ? char32_t{byte} : next++;
  return symbols;
}

// The bytes that a token's symbols stand for; "" when it has other characters.
std::string bytes_of(std::string_view token) {
  // No symbol is behind U+0143, and each stands for one byte.
  static const std::array<std::int16_t, 0x144> kBytes = [] {
    std::array<std::int16_t, 0x144> bytes;
    bytes.fill(-1);
    for (unsigned byte = 0; byte < 256; ++byte)
      bytes[byte_symbol(static_cast<unsigned char>(byte))] = static_cast<std::int16_t>(byte);
    return bytes;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const char32_t c = next_code_point(token, at);
    if (c >= kBytes.size() || kBytes[c] < 0) return {};
    bytes += static_cast<char>(kBytes[c]);
  }
  return bytes;
}

// The heap's top is the lowest rank, of equal ones the leftmost.
bool comes_later(const Bpe::Work::Candidate& a, const Bpe::Work::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

char32_t byte_symbol(unsigned char byte) {
  static const std::array<char32_t, 256> kSymbols = all_byte_symbols();
  return kSymbols[byte];
}

// Most words are one token. Those tokens that their own bytes merge to are found without merging.
Bpe::Bpe(std::span<const std::string> vocabulary, const std::array<std::int32_t, 256>& byte_ids,
         std::span<const Merge> merges, bool whole_words)
    : byte_ids_(byte_ids), words_(vocabulary.size()), word_trie_({}) {
  add_rules(merges, vocabulary.size());
  Work work;
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    std::string bytes = bytes_of(vocabulary[id]);
    if (bytes.empty()) continue;
    if (!whole_words) {
      merge(bytes, work);
      if (work.pieces.size() != 1 || work.pieces[0].id != static_cast<std::int32_t>(id)) continue;
    }
    words_[id] = std::move(bytes);
  }
  word_trie_ = Trie(words_);
}

void Bpe::add_rules(std::span<const Merge> merges, std::size_t num_ids) {
  std::vector<std::uint32_t> order(merges.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto key = [&](std::uint32_t i) { return std::pair(merges[i].left, merges[i].right); };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  rules_begin_.assign(num_ids + 1, 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i + 1 < order.size() && key(order[i]) == key(order[i + 1])) continue;  // the last counts
    const Merge& merge = merges[order[i]];
    rules_.push_back({merge.right, order[i], merge.result});
    ++rules_begin_[static_cast<std::size_t>(merge.left) + 1];
  }
  std::partial_sum(rules_begin_.begin(), rules_begin_.end(), rules_begin_.begin());
}

const Bpe::Rule* Bpe::find_rule(std::int32_t left, std::int32_t right) const {
  const auto first = rules_.begin() + rules_begin_[static_cast<std::size_t>(left)];
  const auto last = rules_.begin() + rules_begin_[static_cast<std::size_t>(left) + 1];
  const auto rule = std::lower_bound(first, last, right,
                                     [](const Rule& r, std::int32_t id) { return r.right < id; });
  return rule != last && rule->right == right ? &*rule : nullptr;
}

void Bpe::encode(std::string_view word, Work& work) const {
  const Trie::Node node = word_trie_.find(word);
  if (node != Trie::kNone && word_trie_.id(node) >= 0) {
    work.pieces.assign(1, {word_trie_.id(node), static_cast<std::uint32_t>(word.size())});
    return;
  }
  merge(word, work);
}

// All candidates lie in a heap. The result shows whether one was overtaken by another merge: the
// crate compares nothing else, so neither does this.
void Bpe::merge(std::string_view word, Work& work) const {
  work.symbols.clear();
  work.heap.clear();
  work.pieces.clear();
  const auto size = static_cast<std::int32_t>(word.size());
  InterruptionCheck check;  // a word may be as long as a text
  for (std::int32_t i = 0; i < size; ++i) {
    check.count();
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
    work.symbols.push_back({byte_ids_[byte], i - 1, i + 1 < size ? i + 1 : -1, 1});
  }
  for (std::int32_t i = 0; i + 1 < size; ++i) {
    check.count();
    push_candidate(work, i);
  }
  while (!work.heap.empty()) {
    check.count();
    std::pop_heap(work.heap.begin(), work.heap.end(), comes_later);
    const Work::Candidate top = work.heap.back();
    work.heap.pop_back();
    const Work::Symbol& left = work.symbols[top.position];
    if (left.size == 0 || left.next < 0) continue;
    const Rule* rule = find_rule(left.id, work.symbols[static_cast<std::size_t>(left.next)].id);
    if (rule == nullptr || rule->result != top.result) continue;
    take(work, static_cast<std::int32_t>(top.position), top.result);
  }
  std::uint32_t end = 0;
  for (std::int32_t i = size > 0 ? 0 : -1; i >= 0;) {
    check.count();
    const Work::Symbol& symbol = work.symbols[static_cast<std::size_t>(i)];
    work.pieces.push_back({symbol.id, end += symbol.size});
    i = symbol.next;
  }
}

// The candidate of a symbol and the one behind it, if there is a rule for them.
void Bpe::push_candidate(Work& work, std::int32_t position) const {
  const Work::Symbol& left = work.symbols[static_cast<std::size_t>(position)];
  if (left.next < 0) return;
  const Rule* rule = find_rule(left.id, work.symbols[static_cast<std::size_t>(left.next)].id);
  if (rule == nullptr) return;
  work.heap.push_back({rule->rank, static_cast<std::uint32_t>(position), rule->result});
  std::push_heap(work.heap.begin(), work.heap.end(), comes_later);
}

// Makes the symbol at `position` and the one behind it one.
void Bpe::take(Work& work, std::int32_t position, std::int32_t result) const {
  Work::Symbol& left = work.symbols[static_cast<std::size_t>(position)];
  Work::Symbol& right = work.symbols[static_cast<std::size_t>(left.next)];
  left.id = result;
  left.size += right.size;
  right.size = 0;
  left.next = right.next;
  if (left.next >= 0) work.symbols[static_cast<std::size_t>(left.next)].previous = position;
  if (left.previous >= 0) push_candidate(work, left.previous);
  push_candidate(work, position);
}

void Bpe::encode_reference(std::string_view word, Work& work) const {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < word.size(); ++i)
    pieces.push_back(
        {byte_ids_[static_cast<unsigned char>(word[i])], static_cast<std::uint32_t>(i + 1)});
  for (;;) {
    const Rule* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      const Rule* rule = find_rule(pieces[i].id, pieces[i + 1].id);
      if (rule == nullptr || (best != nullptr && rule->rank >= best->rank)) continue;
      best = rule;
      at = i;
    }
    if (best == nullptr) break;
    pieces[at] = {best->result, pieces[at + 1].end};
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  work.pieces = std::move(pieces);
}

}  // namespace tandem::text
