// Entities of labelled tokens: what transformers' TokenClassificationPipeline makes of them.
#include "apps/answering/labeling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/answering/label_json.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::apps {
namespace {

using ::testing::ElementsAre;

const std::vector<std::string> kLabels = {"B-PER", "I-PER", "B-LOC", "O"};

// A token of code points [begin, end) whose best label has the probability.
LabelledToken token(std::size_t begin, std::size_t end, std::size_t label, double probability,
                    bool continues_word = false) {
  LabelledToken token{.begin = begin,
                      .end = end,
                      .continues_word = continues_word,
                      .joins_word = continues_word,
                      .probabilities = std::vector<double>(kLabels.size(), (1 - probability) / 3)};
  token.probabilities[label] = probability;
  return token;
}

// "Ida Bo met Kim in Oslo"
const std::vector<LabelledToken> kTokens = {token(0, 3, 0, 0.75),       token(4, 6, 1, 0.25 + 0.5),
                                            token(7, 10, 3, 0.9),       token(11, 14, 0, 0.5),
                                            token(15, 17, 3, 0.9),      token(18, 20, 2, 0.75),
                                            token(20, 22, 3, 0.5, true)};

std::string shown(const std::vector<Entity>& entities) {
  std::string text;
  for (const Entity& entity : entities) {
    text += fmt::format("{} {}-{} {:.3f}; ", entity.label, entity.begin, entity.end, entity.score);
  }
  return text;
}

const std::vector<std::string> kOutside = {"O"};

TEST(Entities, NeighboursOfOneTypeAreOneEntity) {
  EXPECT_EQ(shown(entities(kTokens, kLabels, Aggregation::kSimple, kOutside)),
            "PER 0-6 0.750; PER 11-14 0.500; LOC 18-20 0.750; ");
}

TEST(Entities, WithoutAggregationEachTokenIsOne) {
  const auto found = entities(kTokens, kLabels, Aggregation::kNone, kOutside);
  EXPECT_EQ(shown(found),
            "B-PER 0-3 0.750; I-PER 4-6 0.750; B-PER 11-14 0.500; B-LOC 18-20 0.750; ");
  EXPECT_EQ(found[2].token, 3u);
}

TEST(Entities, WordsGetTheirLabelByTheStrategy) {
  const auto oslo = [](Aggregation aggregation) {
    return shown({entities(kTokens, kLabels, aggregation, {}).back()});
  };
  EXPECT_EQ(oslo(Aggregation::kFirst), "LOC 18-22 0.750; ");
  EXPECT_EQ(oslo(Aggregation::kMax), "LOC 18-22 0.750; ");
  // (0.75 + 0.5 / 3) / 2
  EXPECT_EQ(oslo(Aggregation::kAverage), "LOC 18-22 0.458; ");
  EXPECT_EQ(oslo(Aggregation::kSimple), "O 20-22 0.500; ");
}

TEST(Entities, ABeginOfTheSameTypeBeginsAnotherOne) {
  const std::vector<LabelledToken> two = {token(0, 1, 0, 0.9), token(2, 3, 0, 0.9),
                                          token(4, 5, 1, 0.9)};
  EXPECT_EQ(shown(entities(two, kLabels, Aggregation::kSimple, kOutside)),
            "PER 0-1 0.900; PER 2-5 0.900; ");
}

TEST(Entities, WordsKeepTheirLabelOfTheFirstToken) {
  std::vector<std::string> labels;
  for (const Entity& word : words(kTokens, kLabels, Aggregation::kFirst))
    labels.push_back(word.label);
  EXPECT_THAT(labels, ElementsAre("B-PER", "I-PER", "O", "B-PER", "O", "B-LOC"));
}

// Positions count code points; the word is the text itself.
TEST(Entities, JsonHasTheFormOfTheHub) {
  const std::string text = "Ída Bø";
  const std::vector<LabelledToken> tokens = {token(0, 3, 0, 0.75), token(4, 6, 1, 0.75)};
  EXPECT_EQ(
      python_json(entities_json(text, entities(tokens, kLabels, Aggregation::kSimple, kOutside),
                                Aggregation::kSimple)),
      R"([{"entity_group": "PER", "score": 0.75, "word": "\u00cdda B\u00f8", "start": 0, )"
      R"("end": 6}])");
  EXPECT_EQ(python_json(entities_json(text, entities(tokens, kLabels, Aggregation::kNone, kOutside),
                                      Aggregation::kNone)),
            R"([{"entity": "B-PER", "score": 0.75, "index": 1, "word": "\u00cdda", "start": 0, )"
            R"("end": 3}, {"entity": "I-PER", "score": 0.75, "index": 2, "word": "B\u00f8", )"
            R"("start": 4, "end": 6}])");
}

TEST(Labels, JsonHasTheBestOnes) {
  const std::vector<LabelScore> scores = {{2, 0.5}, {0, 0.25}, {1, 0.25}};
  EXPECT_EQ(python_json(labels_json(scores, kLabels, 2)),
            R"([{"label": "B-LOC", "score": 0.5}, {"label": "B-PER", "score": 0.25}])");
}

}  // namespace
}  // namespace tandem::apps
