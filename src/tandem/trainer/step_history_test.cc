#include "tandem/trainer/step_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/core/error.h"
#include "tandem/trainer/resume_state.h"

namespace tandem::trainer {
namespace {

StepPoint point(std::int64_t step) {
  const auto value = static_cast<double>(step);
  return {.step = step, .loss = 1 / value, .learning_rate = 1e-5 * value, .grad_norm = 3 * value};
}

TEST(StepHistory, KeepsEveryStepOfAShortRun) {
  StepHistory history;
  for (std::int64_t step = 1; step <= 100; ++step) history.add(point(step));
  const std::vector<StepPoint> points = history.points();
  ASSERT_EQ(points.size(), 100u);
  EXPECT_EQ(points.front(), point(1));
  EXPECT_EQ(points[2].loss, 0.333333);  // six digits
  EXPECT_EQ(points.back().step, 100);
}

// Each point is the mean of as many steps; their number and the text of a checkpoint are bounded.
TEST(StepHistory, ThinsALongRun) {
  StepHistory history(8);
  double sum = 0;
  for (std::int64_t step = 1; step <= 37; ++step) {
    history.add(
        {.step = step, .loss = 1, .learning_rate = 2, .grad_norm = static_cast<double>(step)});
    sum += static_cast<double>(step);
  }
  const std::vector<StepPoint> points = history.points();
  ASSERT_EQ(points.size(), 5u);  // points of 8 steps each, the last of 5
  double of_points = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].step, std::min<std::int64_t>(8 * static_cast<std::int64_t>(i + 1), 37));
    EXPECT_EQ(points[i].loss, 1);
    EXPECT_EQ(points[i].learning_rate, 2);
    of_points += points[i].grad_norm * (i + 1 < points.size() ? 8 : 5);
  }
  EXPECT_EQ(of_points, sum);
  StepHistory million;
  for (std::int64_t step = 1; step <= 1000000; ++step) million.add(point(step));
  EXPECT_LE(million.points().size(), StepHistory::kCapacity);
  EXPECT_GE(million.points().size(), StepHistory::kCapacity / 4);
  EXPECT_LT(million.to_json().dump().size(), 40 * StepHistory::kCapacity);
}

// Wherever a run is stopped, the history of the whole run comes out.
TEST(StepHistory, ContinuesFromACheckpoint) {
  StepHistory whole(16);
  for (std::int64_t step = 1; step <= 300; ++step) whole.add(point(step));
  for (const std::int64_t stop : {1, 15, 16, 17, 99, 256, 299}) {
    ResumeState saved;
    saved.shard_loss_since_log = {0};
    saved.history = StepHistory(16);
    for (std::int64_t step = 1; step <= stop; ++step) saved.history.add(point(step));
    ResumeState resumed = ResumeState::parse(saved.to_json(), "test");
    for (std::int64_t step = stop + 1; step <= 300; ++step) resumed.history.add(point(step));
    EXPECT_EQ(resumed.history.points(), whole.points()) << stop;
    EXPECT_EQ(resumed.history.to_json(), whole.to_json()) << stop;
  }
}

TEST(StepHistory, ValuesThatAreNotFiniteInterruptTheLine) {
  StepHistory history(4);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  history.add({.step = 1, .loss = nan, .learning_rate = 1, .grad_norm = infinite});
  history.add({.step = 2, .loss = 2, .learning_rate = 1, .grad_norm = 2});
  const StepHistory read = StepHistory::from_json(history.to_json());
  EXPECT_TRUE(std::isnan(read.points()[0].loss));
  EXPECT_TRUE(std::isnan(read.points()[0].grad_norm));
  EXPECT_EQ(read.points()[0].learning_rate, 1);
  EXPECT_EQ(read.points()[1], history.points()[1]);
}

TEST(StepHistory, ADamagedOneIsRefused) {
  StepHistory history(4);
  history.add(point(1));
  for (const auto& [key, value] : std::vector<std::pair<const char*, nlohmann::ordered_json>>{
           {"capacity", 1},
           {"capacity", 3},
           {"capacity", 1 << 30},
           {"steps_per_point", 0},
           {"open", {1, {1, 2, 3, 4}}},
           {"points", nlohmann::ordered_json::array(
                          {{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}})}}) {
    nlohmann::ordered_json damaged = history.to_json();
    damaged[key] = value;
    EXPECT_THROW(StepHistory::from_json(damaged), DataError) << key << value;
  }
  nlohmann::ordered_json text = history.to_json();
  text["points"][0][1] = "much";
  EXPECT_THROW(StepHistory::from_json(text), nlohmann::json::exception);
  EXPECT_THROW(ResumeState::parse(R"({"history": "{"})", "test"), DataError);
  // Checkpoints of versions without it.
  ResumeState old;
  old.shard_loss_since_log = {0};
  auto json = parse_ordered_json(old.to_json());
  json.erase("history");
  EXPECT_THAT(ResumeState::parse(json.dump(), "test").history.points(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace tandem::trainer
