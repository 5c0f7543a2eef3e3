// Ten thousand simulated jobs; the program membership_schedules runs more.
#include <gtest/gtest.h>

#include "membership/simulation.h"

namespace tandem::simulation {
namespace {

class Schedules : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Schedules, KeepTheInvariants) {
  constexpr std::uint64_t kEach = 2500;
  std::uint64_t views = 0;
  std::uint64_t deaths = 0;
  std::uint64_t learned = 0;
  for (std::uint64_t i = 1; i <= kEach; ++i) {
    Schedule schedule;
    schedule.seed = GetParam() * kEach + i;
    schedule.wire = i % 16 == 0;
    schedule.alarms = i % 4 == 1;
    const Outcome outcome = run(schedule);
    ASSERT_EQ(outcome.violation, "") << "seed " << schedule.seed;
    views += outcome.views;
    deaths += outcome.deaths;
    learned += outcome.learned;
  }
  // That something happens in them.
  EXPECT_GT(views, kEach);
  EXPECT_GT(deaths, kEach / 10);
  EXPECT_GT(learned, kEach / 20);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Schedules, testing::Range<std::uint64_t>(0, 4));

// Each of these has once shown a mistake of the protocol.
TEST(Schedules, ThatOnceFailed) {
  for (const std::uint64_t seed :
       {12,     34,     66,     76,     373,    424,    466,    516,    540,    795,    1100,
        2158,   12980,  16817,  22453,  27042,  102744, 107110, 139019, 162904, 182762, 187296,
        191431, 240388, 241576, 258344, 267970, 286486, 72121,  180133, 486704, 999265, 776373}) {
    Schedule schedule;
    schedule.seed = seed;
    EXPECT_EQ(run(schedule).violation, "") << "seed " << seed;
  }
}

TEST(Schedules, AreTheSameForTheSameSeed) {
  Schedule schedule;
  schedule.trace = true;
  schedule.seed = 8;
  const Outcome once = run(schedule);
  EXPECT_GT(once.trace.size(), 10u);
  EXPECT_EQ(once.trace, run(schedule).trace);
}

// Without deaths there is never more than one view that follows another: the halves of a cut
// network do not both continue.
TEST(Schedules, WithoutDeathsLeaveOneSideOfACut) {
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    Schedule schedule;
    schedule.seed = seed;
    schedule.deaths = false;
    schedule.lock = false;
    schedule.nodes = 5;
    schedule.alarms = seed % 2 == 1;
    ASSERT_EQ(run(schedule).violation, "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace tandem::simulation
