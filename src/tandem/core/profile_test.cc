#include "tandem/core/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace tandem {
namespace {

TEST(Profile, AddsUpCallsOfAStage) {
  Profile profile;
  const auto start = std::chrono::steady_clock::now();
  for (int call = 0; call < 2; ++call) {
    const StageTimer timer(&profile, "qkv", "forward");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  { const StageTimer timer(&profile, "qkv", "dX"); }
  const auto passed = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(profile.stages().size(), 2u);
  EXPECT_EQ(profile.stages()[0].name, "qkv");
  EXPECT_EQ(profile.stages()[0].part, "forward");
  EXPECT_EQ(profile.stages()[0].calls, 2u);
  EXPECT_GE(profile.stages()[0].time, std::chrono::milliseconds(2));
  EXPECT_EQ(profile.stages()[1].part, "dX");
  EXPECT_LE(profile.total(), passed);
  profile.clear();
  EXPECT_TRUE(profile.stages().empty());
  EXPECT_EQ(profile.total(), Profile::Duration::zero());
}

TEST(Profile, WorksWithoutAListener) { const StageTimer timer(nullptr, "qkv", "forward"); }

TEST(ProfileDeathTest, AStageInAStageIsABug) {
  Profile profile;
  EXPECT_EXIT(
      {
        const StageTimer outer(&profile, "layer", "forward");
        const StageTimer inner(&profile, "qkv", "forward");
      },
      ::testing::ExitedWithCode(70), "inside another one");
}

}  // namespace
}  // namespace tandem
