#include "tandem/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::optim {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// --- Schedules at known points ---

TEST(Schedule, LinearGoesDownToZero) {
  const Schedule schedule = {ScheduleType::kLinear, 744, 0};
  EXPECT_EQ(schedule.factor(0), 1.0);
  EXPECT_EQ(schedule.factor(1), 743.0 / 744);
  EXPECT_EQ(schedule.factor(743), 1.0 / 744);
  EXPECT_EQ(schedule.factor(744), 0.0);
  EXPECT_EQ(schedule.factor(10'000), 0.0);
}

TEST(Schedule, LinearWarmsUp) {
  const Schedule schedule = {ScheduleType::kLinear, 100, 20};
  EXPECT_EQ(schedule.factor(0), 0.0);
  EXPECT_EQ(schedule.factor(10), 0.5);
  EXPECT_EQ(schedule.factor(20), 1.0);
  EXPECT_EQ(schedule.factor(60), 0.5);
  const Schedule only_warmup = {ScheduleType::kLinear, 5, 5};
  EXPECT_EQ(only_warmup.factor(4), 0.8);
  EXPECT_EQ(only_warmup.factor(5), 0.0);
}

TEST(Schedule, ConstantAndConstantWithWarmup) {
  EXPECT_EQ((Schedule{ScheduleType::kConstant, 100, 20}.factor(0)), 1.0);
  EXPECT_EQ((Schedule{ScheduleType::kConstantWithWarmup, 100, 20}.factor(5)), 0.25);
  EXPECT_EQ((Schedule{ScheduleType::kConstantWithWarmup, 100, 20}.factor(99)), 1.0);
}

TEST(Schedule, KwargsAreChecked) {
  const auto parse = [](ScheduleType type, const char* text) {
    return [=] { parse_schedule_options(type, nlohmann::json::parse(text), 5e-5); };
  };
  EXPECT_EQ(*parse_schedule_options(ScheduleType::kCosine, {{"num_cycles", "2"}}, 1).num_cycles, 2);
  EXPECT_THAT(parse(ScheduleType::kCosine, R"({"cycles": 2})"),
              ThrowsMessage<ConfigError>(
                  HasSubstr("cosine does not know 'cycles'; its settings are num_cycles")));
  EXPECT_THAT(parse(ScheduleType::kLinear, R"({"power": 2})"),
              ThrowsMessage<ConfigError>(HasSubstr("it has no settings")));
  EXPECT_THAT(parse(ScheduleType::kCosine, R"({"num_cycles": "many"})"),
              ThrowsMessage<ConfigError>(HasSubstr("num_cycles is \"many\", expected a number")));
  EXPECT_THAT(parse(ScheduleType::kPolynomial, R"({"lr_end": 1})"),
              ThrowsMessage<ConfigError>(HasSubstr("must be smaller than --learning_rate")));
  EXPECT_THAT(parse(ScheduleType::kCosineWithMinLr, "{}"),
              ThrowsMessage<ConfigError>(HasSubstr("give one of min_lr and min_lr_rate")));
  EXPECT_THAT(parse(ScheduleType::kCosineWithMinLr, R"({"min_lr": 0, "min_lr_rate": 0})"),
              ThrowsMessage<ConfigError>(HasSubstr("give only one of")));
  EXPECT_THAT(parse(ScheduleType::kWarmupStableDecay, "{}"),
              ThrowsMessage<ConfigError>(HasSubstr("needs num_decay_steps")));
  EXPECT_THAT(
      parse(ScheduleType::kWarmupStableDecay, R"({"num_decay_steps": 3, "decay_type": "steep"})"),
      ThrowsMessage<ConfigError>(HasSubstr("expected one of linear, cosine, 1-sqrt")));
  EXPECT_THAT(
      [] {
        parse_plateau_options({{"patience", 1.5}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("patience is 1.5, expected a whole number")));
}

TEST(ClipFactor, ScalesOnlyLongGradients) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / 4.000001);
  EXPECT_LT(clip_factor(1.0, 1.0), 1.0);  // torch's 1e-6 counts
  EXPECT_EQ(clip_factor(100.0, 0.0), 1.0);
  EXPECT_TRUE(std::isnan(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0)));
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0), 0.0);
}

}  // namespace
}  // namespace tandem::optim
