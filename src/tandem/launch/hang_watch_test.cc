// When a process counts as hung, with a clock of the test's.
#include "tandem/launch/hang_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace tandem::launch {
namespace {

using std::chrono::seconds;

TEST(Stillness, GrowsWhileNoProcessorIsUsed) {
  Stillness stillness;
  Stillness::Clock::time_point now{};
  EXPECT_EQ(stillness.look(7, now), seconds(0));
  EXPECT_EQ(stillness.look(7, now += seconds(1)), seconds(1));
  EXPECT_EQ(stillness.look(7, now += seconds(2)), seconds(3));
  EXPECT_EQ(stillness.look(8, now += seconds(1)), seconds(0));
  EXPECT_EQ(stillness.look(8, now += seconds(1)), seconds(1));
}

// Agent and workers of a container that was paused for a night are as they were.
TEST(Stillness, WhoDoesNotLookWasStoppedToo) {
  Stillness stillness;
  Stillness::Clock::time_point now{};
  stillness.look(7, now);
  EXPECT_EQ(stillness.look(7, now += std::chrono::hours(9)), seconds(2));
}

TEST(Stillness, TicksGrowWithWork) {
  const auto before = processor_ticks(::getpid());
  ASSERT_TRUE(before);
  while (processor_ticks(::getpid()) == before) {
  }
  EXPECT_GT(processor_ticks(::getpid()), before);
  EXPECT_FALSE(processor_ticks(999999999));
}

}  // namespace
}  // namespace tandem::launch
