// Negatives that cross-encoders draw from the other rows of a batch, and the pairs made of them.
#include "tandem/tasks/reranking/in_batch_negatives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/test_support.h"

namespace tandem::tasks::reranking {
namespace {

using ::testing::ElementsAre;

TEST(InBatchNegatives, AllAreThePassagesOfTheOtherRows) {
  const std::vector<std::size_t> begins{0, 2, 3, 6};
  EXPECT_THAT(in_batch_negatives({std::nullopt}, begins, 0, 0), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(in_batch_negatives({std::nullopt}, begins, 1, 0), ElementsAre(0, 1, 3, 4, 5));
  EXPECT_THAT(in_batch_negatives({std::nullopt}, begins, 2, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(in_batch_negatives({3}, begins, 2, 7), ElementsAre(0, 1, 2));
  EXPECT_TRUE(in_batch_negatives({4}, std::vector<std::size_t>{0, 3}, 0, 0).empty());
}

// Each passage of the other rows is drawn about as often as the others, and at most once a draw.
TEST(InBatchNegatives, DrawsEachPassageAlike) {
  std::vector<std::size_t> begins;
  for (std::size_t row = 0; row <= 10; ++row) begins.push_back(2 * row);
  std::map<std::size_t, int> counts;
  constexpr int kDraws = 9000;
  for (int key = 0; key < kDraws; ++key) {
    const auto drawn = in_batch_negatives({4, 7}, begins, 3, static_cast<std::uint64_t>(key));
    ASSERT_EQ(drawn.size(), 4u);
    for (std::size_t i = 1; i < drawn.size(); ++i) ASSERT_LT(drawn[i - 1], drawn[i]);
    for (const std::size_t passage : drawn) ++counts[passage];
  }
  EXPECT_EQ(counts.size(), 18u);
  EXPECT_FALSE(counts.contains(6) || counts.contains(7)) << "its own passages";
  const double expected = kDraws * 4 / 18.0;
  for (const auto& [passage, count] : counts)
    EXPECT_NEAR(count, expected, 5 * std::sqrt(expected)) << passage;
}

TEST(InBatchNegatives, SeedAndKeyDecideTheDraw) {
  std::vector<std::size_t> begins;
  for (std::size_t row = 0; row <= 64; ++row) begins.push_back(row);
  const auto drawn = [&](std::uint64_t seed, std::uint64_t key) {
    return in_batch_negatives({4, seed}, begins, 0, key);
  };
  EXPECT_EQ(drawn(1, 2), drawn(1, 2));
  EXPECT_NE(drawn(1, 2), drawn(1, 3));
  EXPECT_NE(drawn(1, 2), drawn(2, 2));
}

TEST(InBatchNegatives, CountsTheMost) {
  EXPECT_EQ(most_in_batch_negatives({4}, 8, 1), 4u);
  EXPECT_EQ(most_in_batch_negatives({4}, 3, 1), 2u);
  EXPECT_EQ(most_in_batch_negatives({4}, 1, 3), 0u);
  EXPECT_EQ(most_in_batch_negatives({std::nullopt}, 8, 3), 21u);
}

class ComposedPairsTest : public testing::SharedDataTest {};

// Whatever the lengths, a pair of tokenized texts is the pair that is tokenized together.
TEST_F(ComposedPairsTest, AreThePairsOfBuildTextFeatures) {
  const auto path = testing::shared_data() / "golden/next/models/tiny-ce";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << path;
  const auto tokenizer = text::Tokenizer::load(path);
  ThreadPool threads(2);
  const auto location = [](std::size_t i) { return std::to_string(i); };
  std::string longer;
  for (int word = 0; word < 60; ++word) longer += "the ship ";
  const std::vector<std::string_view> texts = {"", "a ship", longer, "the sails of a ship", longer};
  const auto single =
      text_classification::build_text_features(tokenizer, texts, {}, 100000, threads, location);
  for (const std::size_t max_tokens : {8u, 31u, 128u}) {
    std::vector<std::string_view> first, second;
    ComposedPairs pairs;
    pairs.set_texts(single, tokenizer.pair_template(), max_tokens);
    for (std::size_t a = 0; a < texts.size(); ++a)
      for (std::size_t b = 0; b < texts.size(); ++b) {
        first.push_back(texts[a]);
        second.push_back(texts[b]);
        pairs.add(a, b);
      }
    const auto expected = text_classification::build_text_features(tokenizer, first, second,
                                                                   max_tokens, threads, location);
    ASSERT_EQ(pairs.size(), expected.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      std::vector<std::int32_t> ids, types, expected_ids, expected_types;
      pairs.append_tokens(i, ids, types);
      expected.append_tokens(i, expected_ids, expected_types);
      EXPECT_EQ(ids, expected_ids) << i;
      EXPECT_EQ(types, expected_types) << i;
      EXPECT_EQ(pairs.num_real_tokens(i), ids.size());
    }
    EXPECT_EQ(pairs.longest(3), max_tokens);
  }
}

}  // namespace
}  // namespace tandem::tasks::reranking
