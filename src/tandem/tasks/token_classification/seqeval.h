// Scores of tagged words by the entities that the tags spell, as seqeval's default mode has them
// (Nakayama 2018; the CoNLL-2000 conventions: any tag that opens, ends or changes a type counts, so
// an I- without its B- is an entity too).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem::token_classification {

// Counts of entities. A quotient without a denominator is 0.
struct EntityCounts {
  std::size_t expected = 0;
  std::size_t predicted = 0;
  std::size_t correct = 0;  // entities of both, with the same span and type

  double precision() const;
  double recall() const;
  double f1() const;
};

struct SeqevalScores {
  std::vector<std::pair<std::string, EntityCounts>> types;  // those that occur, by code point
  EntityCounts overall;                                     // sums over the types
  std::size_t tags = 0;
  std::size_t correct_tags = 0;

  double accuracy() const;  // the share of equal tags
};

// Tag sequences one after the other: ids of labels, and where each sentence begins; the last value
// is the number of tags.
struct TagSequences {
  std::span<const std::uint32_t> expected;
  std::span<const std::uint32_t> predicted;  // as many
  std::span<const std::size_t> begins;       // [sentences + 1]
};

// `labels` are the names of the ids: "B-person", "O". A name is a prefix, its first character, and
// a type: what follows its first '-', else the rest; "_" when that is empty. Throws DataError for
// an empty name.
SeqevalScores seqeval(std::span<const std::string> labels, const TagSequences& tags);

}  // namespace tandem::token_classification
