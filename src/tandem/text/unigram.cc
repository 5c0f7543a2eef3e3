#include "tandem/text/unigram.h"

#include <algorithm>
#include <limits>

#include "tandem/core/interruption.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

constexpr double kUnknownPenalty = 10.0;

double least(std::span<const std::string> vocabulary, std::span<const double> scores) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t id = 0; id < scores.size(); ++id)
    if (!vocabulary[id].empty()) least = std::min(least, scores[id]);
  return least;
}

std::size_t character_end(std::string_view text, std::size_t at) {
  next_code_point(text, at);
  return at;
}

void start(std::string_view text, Unigram::Work& work) {
  work.nodes.assign(text.size() + 1, {0.0, 0, -1});
}

}  // namespace

Unigram::Unigram(std::span<const std::string> vocabulary, std::span<const double> scores,
                 std::int32_t unk_id)
    : trie_(vocabulary),
      scores_(scores.begin(), scores.end()),
      unk_id_(unk_id),
      unk_score_(least(vocabulary, scores) - kUnknownPenalty) {}

// A later candidate wins only if it is better: the crate's order of candidates (by begin, then by
// length) decides between equal ones.
void Unigram::offer(Work& work, std::size_t begin, std::size_t end, std::int32_t id,
                    double score) const {
  Work::PathNode& node = work.nodes[end];
  const double candidate = score + work.nodes[begin].score;
  if (node.id < 0 || candidate > node.score)
    node = {candidate, static_cast<std::uint32_t>(begin), id};
}

void Unigram::encode(std::string_view text, Work& work) const {
  start(text, work);
  InterruptionCheck check;  // a text without blanks is one word
  for (std::size_t begin = 0; begin < text.size();) {
    check.count();
    const std::size_t next = character_end(text, begin);
    bool covered = false;
    Trie::Node node = Trie::kRoot;
    for (std::size_t at = begin; at < text.size(); ++at) {
      node = trie_.child(node, static_cast<unsigned char>(text[at]));
      if (node == Trie::kNone) break;
      const std::int32_t id = trie_.id(node);
      if (id < 0) continue;
      offer(work, begin, at + 1, id, scores_[static_cast<std::size_t>(id)]);
      covered = covered || at + 1 == next;
    }
    if (!covered) offer(work, begin, next, unk_id_, unk_score_);
    begin = next;
  }
  collect(text, work);
}

void Unigram::encode_reference(std::string_view text, Work& work) const {
  start(text, work);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t next = character_end(text, begin);
    bool covered = false;
    for (std::size_t end = begin + 1; end <= text.size(); ++end) {
      const Trie::Node node = trie_.find(text.substr(begin, end - begin));
      if (node == Trie::kNone || trie_.id(node) < 0) continue;
      const std::int32_t id = trie_.id(node);
      offer(work, begin, end, id, scores_[static_cast<std::size_t>(id)]);
      covered = covered || end == next;
    }
    if (!covered) offer(work, begin, next, unk_id_, unk_score_);
    begin = next;
  }
  collect(text, work);
}

// From the end to the beginning; unknown neighbours become one. If what they make together is a
// token, it is that token, as in the crate.
void Unigram::collect(std::string_view text, Work& work) const {
  work.pieces.clear();
  InterruptionCheck check;
  for (std::size_t end = text.size(); end > 0;) {
    check.count();
    const Work::PathNode& last = work.nodes[end];
    std::size_t begin = last.begin;
    std::int32_t id = last.id;
    if (id == unk_id_) {
      while (begin > 0 && work.nodes[begin].id == unk_id_) {
        check.count();
        begin = work.nodes[begin].begin;
      }
      const Trie::Node node = trie_.find(text.substr(begin, end - begin));
      if (node != Trie::kNone && trie_.id(node) >= 0) id = trie_.id(node);
    }
    work.pieces.push_back({id, static_cast<std::uint32_t>(end)});
    end = begin;
  }
  std::reverse(work.pieces.begin(), work.pieces.end());
}

}  // namespace tandem::text
