#include "tandem/quant/tuning.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace tandem::quant {
namespace {

using ::testing::ElementsAre;

const std::vector<std::string> kBlocks = {"layer.2", "layer.1", "layer.0"};
const std::vector<InputRanges> kStatic = {InputRanges::kLeastError, InputRanges::kMinMax};

std::string text(const Configuration& configuration) {
  return fmt::format("{} [{}]", to_string(configuration.ranges),
                     fmt::join(configuration.f32_blocks, " "));
}

// Evaluates by a table; everything that is not in it has the metric 50. Records the order.
struct FakeEvaluation {
  std::map<std::string, double> metrics;
  std::vector<std::string> order = {};

  double operator()(const Configuration& configuration) {
    order.push_back(text(configuration));
    const auto found = metrics.find(order.back());
    return found == metrics.end() ? 50 : found->second;
  }
};

TEST(Tuning, TheFirstTrialWithinTheToleranceEndsIt) {
  FakeEvaluation evaluation{{{"histogram []", 85.6}}};
  const TuningResult result = tune(90, kStatic, kBlocks, {.tolerance = 0.05}, evaluation);
  EXPECT_TRUE(result.accepted);
  EXPECT_THAT(evaluation.order, ElementsAre("histogram []"));
  EXPECT_EQ(result.chosen().metric, 85.6);
  EXPECT_EQ(result.baseline, 90);
}

TEST(Tuning, ExactlyTheToleranceIsWithinIt) {
  FakeEvaluation evaluation{{{"dynamic []", 75}}};
  EXPECT_TRUE(
      tune(100, std::vector{InputRanges::kDynamic}, kBlocks, {.tolerance = 0.25}, evaluation)
          .accepted);
}

TEST(Tuning, RangesThenOneBlockFromTheLastThenMoreByTheirGain) {
  FakeEvaluation evaluation{{{"histogram []", 60},
                             {"min-max []", 61},
                             {"min-max [layer.2]", 62},
                             {"min-max [layer.1]", 64},
                             {"min-max [layer.0]", 63},
                             {"min-max [layer.1 layer.0]", 70}}};
  const TuningResult result = tune(100, kStatic, kBlocks, {.max_trials = 100}, evaluation);
  EXPECT_FALSE(result.accepted);
  EXPECT_THAT(evaluation.order,
              ElementsAre("histogram []", "min-max []", "min-max [layer.2]", "min-max [layer.1]",
                          "min-max [layer.0]", "min-max [layer.1 layer.0]"));  // never all
  EXPECT_EQ(result.trials.size(), 6u);
  EXPECT_EQ(text(result.chosen().configuration), "min-max [layer.1 layer.0]");
}

TEST(Tuning, TrialsAreBounded) {
  FakeEvaluation evaluation{{{"histogram []", 60}, {"histogram [layer.2]", 70}}};
  const TuningResult result = tune(100, kStatic, kBlocks, {.max_trials = 4}, evaluation);
  EXPECT_THAT(evaluation.order, ElementsAre("histogram []", "min-max []", "histogram [layer.2]",
                                            "histogram [layer.1]"));
  EXPECT_EQ(result.best, 2u);
  FakeEvaluation once;
  EXPECT_EQ(tune(100, kStatic, kBlocks, {.max_trials = 0}, once).trials.size(), 1u);
}

TEST(Tuning, AFallbackThatIsGoodEnoughEndsIt) {
  FakeEvaluation evaluation{{{"histogram [layer.1]", 96}}};
  const TuningResult result = tune(100, kStatic, kBlocks, {.max_trials = 9}, evaluation);
  EXPECT_TRUE(result.accepted);
  EXPECT_EQ(result.trials.size(), 4u);
  EXPECT_THAT(result.chosen().configuration.f32_blocks, ElementsAre("layer.1"));
}

TEST(Tuning, AModelOfOneBlockHasNoFallback) {
  FakeEvaluation evaluation;
  tune(100, kStatic, std::vector<std::string>{"layer.0"}, {.max_trials = 9}, evaluation);
  EXPECT_EQ(evaluation.order.size(), 2u);
}

TEST(Tuning, AMetricThatIsNoNumberIsNotAccepted) {
  FakeEvaluation evaluation{{{"dynamic []", NAN}}};
  EXPECT_FALSE(tune(100, std::vector{InputRanges::kDynamic}, kBlocks, {.max_trials = 1}, evaluation)
                   .accepted);
}

TEST(Tuning, RelativeDrop) {
  EXPECT_DOUBLE_EQ(relative_drop(80, 60), 0.25);
  EXPECT_DOUBLE_EQ(relative_drop(80, 100), -0.25);
  EXPECT_EQ(relative_drop(0, 0), 0);
  EXPECT_GT(relative_drop(0, -1), 1e300);
  EXPECT_LT(relative_drop(0, 1), 0);
  EXPECT_DOUBLE_EQ(relative_drop(0.5, 0.6, /*greater_is_better=*/false), 0.2);
  EXPECT_DOUBLE_EQ(relative_drop(0.5, 0.4, false), -0.2);
}

// The smallest loss is the best, and a loss that rises too far is not accepted.
TEST(Tuning, ALossMayNotRise) {
  FakeEvaluation evaluation{
      {{"histogram []", 0.7}, {"min-max []", 0.6}, {"min-max [layer.2]", 0.52}}};
  const TuningResult result =
      tune(0.5, kStatic, kBlocks, {.max_trials = 9, .greater_is_better = false}, evaluation);
  EXPECT_TRUE(result.accepted);
  EXPECT_EQ(text(result.chosen().configuration), "min-max [layer.2]");
  EXPECT_EQ(result.best, 2u);
}

}  // namespace
}  // namespace tandem::quant
