#include "apps/answering/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace tandem::apps {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f};

std::map<std::size_t, double> shares(const SamplingOptions& options) {
  constexpr int kDraws = 20000;
  std::map<std::size_t, double> found;
  for (int i = 0; i < kDraws; ++i)
    found[choose_token(kLogits, options, static_cast<std::uint64_t>(i))] += 1.0 / kDraws;
  return found;
}

TEST(Sampling, WithoutADrawTheFirstLikeliestTokenIsNext) {
  EXPECT_EQ(choose_token(kLogits, {}, 7), 1u);
}

TEST(Sampling, DrawsFollowTheProbabilities) {
  const auto found = shares({.sample = true, .temperature = 2, .top_k = 0});
  double total = 0;
  for (const float logit : kLogits) total += std::exp(logit / 2);
  for (std::size_t i = 0; i < kLogits.size(); ++i)
    EXPECT_NEAR(found.at(i), std::exp(kLogits[i] / 2) / total, 0.015) << i;
}

TEST(Sampling, ADrawIsAFunctionOfSeedAndPosition) {
  const SamplingOptions options{.sample = true, .top_k = 0, .seed = 5};
  SamplingOptions other = options;
  other.seed = 6;
  bool differs = false;
  for (std::uint64_t position = 0; position < 40; ++position) {
    const std::size_t token = choose_token(kLogits, options, position);
    EXPECT_EQ(token, choose_token(kLogits, options, position));
    differs = differs || token != choose_token(kLogits, other, position);
  }
  EXPECT_TRUE(differs);
}

TEST(Sampling, TopKLeavesTheLikeliest) {
  EXPECT_EQ(shares({.sample = true, .top_k = 1}).size(), 1u);
  const auto three = shares({.sample = true, .top_k = 3});
  EXPECT_EQ(three.size(), 3u);
  EXPECT_TRUE(three.contains(1) && three.contains(3) && three.contains(2));
}

// The probabilities are 0.40, 0.40, 0.15, 0.05 and 0.01.
TEST(Sampling, TopPKeepsTheTokenThatReachesTheSum) {
  EXPECT_EQ(shares({.sample = true, .top_k = 0, .top_p = 0.3}).size(), 1u);
  EXPECT_EQ(shares({.sample = true, .top_k = 0, .top_p = 0.7}).size(), 2u);
  EXPECT_EQ(shares({.sample = true, .top_k = 0, .top_p = 0.9}).size(), 3u);
  EXPECT_EQ(shares({.sample = true, .top_k = 0, .top_p = 1}).size(), 5u);
}

TEST(TextFromBytes, WaitsForWholeCharacters) {
  TextFromBytes text;
  EXPECT_EQ(text.take("a\xc3"), "a");
  EXPECT_EQ(text.take("\xa4z\xe2\x82"), "\xc3\xa4z");
  EXPECT_EQ(text.take("\xac"), "\xe2\x82\xac");
  EXPECT_EQ(text.finish(), "");
  EXPECT_EQ(text.take("b\xf0\x9f"), "b");
  EXPECT_EQ(text.finish(), "\xef\xbf\xbd");
}

TEST(TextFromBytes, ReplacesWhatIsNotUtf8) {
  TextFromBytes text;
  EXPECT_EQ(text.take("\xff"
                      "a"),
            "\xef\xbf\xbd"
            "a");
  EXPECT_EQ(text.take("\xc3"), "");
  EXPECT_EQ(text.take("(b"), "\xef\xbf\xbd(b");
}

// Text and whether it was stopped, of pieces.
std::pair<std::string, bool> text_until(const std::vector<std::string>& stops,
                                        const std::vector<std::string>& pieces) {
  TextUntil until(stops);
  std::string text;
  for (const std::string& piece : pieces) text += until.take(piece);
  return {text + until.finish(), until.stopped()};
}

TEST(TextUntil, TheFirstStopEndsTheText) {
  using Found = std::pair<std::string, bool>;
  EXPECT_EQ(text_until({}, {"a", "b"}), Found("ab", false));
  EXPECT_EQ(text_until({""}, {"a", "b"}), Found("ab", false));
  EXPECT_EQ(text_until({"b"}, {"a", "bc", "d"}), Found("a", true));
  EXPECT_EQ(text_until({"\n\n", "User:"}, {"yes\n", "Us", "er", ":", " no"}), Found("yes\n", true));
  EXPECT_EQ(text_until({"User:"}, {"yes Us", "e"}), Found("yes Use", false));
  EXPECT_EQ(text_until({"aab"}, {"a", "a", "a", "b"}), Found("a", true));
  EXPECT_EQ(text_until({"d", "bc"}, {"abcd"}), Found("a", true));
}

TEST(TextUntil, OnlyTheBeginOfAStopIsHeldBack) {
  TextUntil until({"stop"});
  EXPECT_EQ(until.take("go st"), "go ");
  EXPECT_EQ(until.take("e"), "ste");
  EXPECT_EQ(until.take("st"), "");
  EXPECT_EQ(until.take("op!"), "");
  EXPECT_TRUE(until.stopped());
}

}  // namespace
}  // namespace tandem::apps
