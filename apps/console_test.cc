#include "apps/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tandem/trainer/training_plan.h"

namespace tandem::apps {
namespace {

// What one entry of the log looks like on stdout.
std::string logged(const nlohmann::ordered_json& entry) {
  Console console({.library_lines = false, .progress_bars = false});
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const trainer::TrainingPlan plan;
  console.train_begin({.plan = plan});
  console.log(entry);
  const std::string text = ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  return text;
}

TEST(Console, LogEntriesAreDictionariesOfPython) {
  EXPECT_EQ(logged({{"loss", 1.25}, {"learning_rate", 1e-5}, {"epoch", 0.0678}, {"step", 7}}),
            "{'loss': 1.25, 'learning_rate': 1e-05, 'epoch': 0.07, 'step': 7}\n");
}

TEST(Console, NumbersThatAreNoneLookAsInPython) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(logged({{"loss", std::numeric_limits<double>::quiet_NaN()},
                    {"grad_norm", infinity},
                    {"other", -infinity}}),
            "{'loss': nan, 'grad_norm': inf, 'other': -inf}\n");
}

TEST(Console, Durations) {
  EXPECT_EQ(format_duration(75.4), "01:15");
  EXPECT_EQ(format_duration(4000), "1:06:40");
}

}  // namespace
}  // namespace tandem::apps
