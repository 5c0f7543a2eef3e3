#include "tandem/elastic/agent/step_time.h"

#include <gtest/gtest.h>

namespace tandem::elastic {
namespace {

TEST(StepTime, IsTheMedianOfTheNewest) {
  StepTime time;
  EXPECT_EQ(time.usual(), 0);
  time.add(5);
  EXPECT_EQ(time.usual(), 5);
  for (int i = 0; i < 8; ++i) time.add(0.1);
  EXPECT_EQ(time.usual(), 0.1);
  // The duration of a step with fewer ranks.
  for (int i = 0; i < 9; ++i) time.add(0.2);
  EXPECT_EQ(time.usual(), 0.2);
}

// Otherwise a pause would seem to have cost nothing.
TEST(StepTime, OneThatWasHeldUpDoesNotCount) {
  StepTime time;
  for (int i = 0; i < 9; ++i) time.add(0.1);
  time.add(30);
  EXPECT_EQ(time.usual(), 0.1);
}

}  // namespace
}  // namespace tandem::elastic
