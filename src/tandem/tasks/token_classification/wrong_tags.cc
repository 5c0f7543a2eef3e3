#include "tandem/tasks/token_classification/wrong_tags.h"

namespace tandem::token_classification {
namespace {

WrongSentence describe(const SentenceSet& sentences, std::size_t i,
                       std::span<const Position> positions, std::span<const std::string> labels,
                       std::span<const std::uint32_t> tags) {
  WrongSentence sentence{.location = sentences.location(i), .words = {}, .num_wrong = 0};
  for (const std::string_view word : sentences.words(i))
    sentence.words.push_back({std::string(word), "", ""});
  for (std::size_t k = 0; k < positions.size(); ++k) {
    TaggedWord& word = sentence.words[positions[k].word];
    if (!word.expected.empty()) continue;
    word.expected = labels[positions[k].label];
    word.predicted = labels[tags[k]];
    sentence.num_wrong += word.expected != word.predicted;
  }
  return sentence;
}

}  // namespace

WrongTags find_wrong_tags(const SentenceSet& sentences, const FeatureSet& features,
                          std::span<const std::string> labels, std::span<const std::uint32_t> tags,
                          std::size_t limit) {
  WrongTags wrong{.num_sentences = features.size(), .num_wrong = 0, .shown = {}};
  for (std::size_t i = 0; i < features.size(); ++i) {
    const auto positions = features.positions(i);
    const auto own = tags.subspan(features.position_begins()[i], positions.size());
    WrongSentence sentence = describe(sentences, i, positions, labels, own);
    if (sentence.num_wrong == 0) continue;
    ++wrong.num_wrong;
    if (wrong.shown.size() < limit) wrong.shown.push_back(std::move(sentence));
  }
  return wrong;
}

}  // namespace tandem::token_classification
