// The sentences of an evaluation that have wrong tags, for people to look through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tandem/tasks/token_classification/features.h"
#include "tandem/tasks/token_classification/sentences.h"

namespace tandem::token_classification {

// A word as the report shows it; owns its texts.
struct TaggedWord {
  std::string word;
  std::string expected, predicted;  // empty: the word has no tag, for it was left out
};

struct WrongSentence {
  std::string location;  // "'test.json', row 17 (line 17)"
  std::vector<TaggedWord> words;
  std::size_t num_wrong = 0;  // words
};

struct WrongTags {
  std::size_t num_sentences = 0;
  std::size_t num_wrong = 0;         // sentences
  std::vector<WrongSentence> shown;  // the first ones, in the order of the file
};

// tags: ids of all positions of `features`, which are of `sentences`. If a word has several labels
// (label_all_tokens), the first one counts.
WrongTags find_wrong_tags(const SentenceSet& sentences, const FeatureSet& features,
                          std::span<const std::string> labels, std::span<const std::uint32_t> tags,
                          std::size_t limit);

}  // namespace tandem::token_classification
