#include "tandem/job/memory_shortage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kMib = std::size_t{1} << 20;

LimitedRank limited(int rank, int node, const std::string& key, std::size_t bytes,
                    std::size_t planned, std::size_t swap = 0) {
  return {rank,
          node,
          {"memory.max of the cgroup " + key, key, bytes * kMib, swap * kMib},
          planned * kMib};
}

TEST(MemoryShortage, APlanAboveALimitIsFatalAndNamesBoth) {
  const std::vector<LimitedRank> limits = {limited(0, 0, "/job", 400, 692)};
  const auto shortage = find_shortage(limits);
  ASSERT_TRUE(shortage && shortage->fatal);
  EXPECT_THAT(shortage->text, AllOf(HasSubstr("rank 0 will need 692 MiB"),
                                    HasSubstr("memory.max of the cgroup /job allows 400 MiB"),
                                    HasSubstr("--gradient_checkpointing")));
}

TEST(MemoryShortage, RanksThatShareALimitCountTogether) {
  std::vector<LimitedRank> limits;
  for (int rank = 0; rank < 4; ++rank) limits.push_back(limited(rank, 0, "/job", 1000, 300));
  const auto shortage = find_shortage(limits);
  ASSERT_TRUE(shortage && shortage->fatal);
  EXPECT_THAT(shortage->text, HasSubstr("the 4 ranks from 0 to 3 will need 1200 MiB"));
}

TEST(MemoryShortage, GroupsOfTheirOwnAndOtherNodesDoNot) {
  std::vector<LimitedRank> limits;
  for (int rank = 0; rank < 4; ++rank) {
    limits.push_back(limited(rank, rank / 2, rank % 2 == 0 ? "/a" : "/b", 400, 300));
  }
  EXPECT_FALSE(find_shortage(limits));
}

TEST(MemoryShortage, SwapAndTheErrorOfThePlanMakeItAWarning) {
  for (const auto& one : {limited(0, 0, "/job", 400, 692, 4000), limited(0, 0, "/job", 400, 390),
                          limited(0, 0, "/job", 400, 420)}) {
    const auto shortage = find_shortage(std::span(&one, 1));
    ASSERT_TRUE(shortage);
    EXPECT_FALSE(shortage->fatal) << shortage->text;
  }
  const LimitedRank room = limited(0, 0, "/job", 400, 300);
  EXPECT_FALSE(find_shortage(std::span(&room, 1)));
}

TEST(MemoryShortage, WhatKillsComesBeforeWhatSlows) {
  const std::vector<LimitedRank> limits = {limited(0, 0, "/slow", 100, 1000, 4000),
                                           limited(0, 0, "/kill", 500, 1000)};
  EXPECT_THAT(find_shortage(limits)->text, HasSubstr("/kill"));
}

TEST(MemoryShortage, TextsComeBackAsTheyWent) {
  const std::vector<LimitedRank> limits = {limited(3, 1, "/a b", 7, 5, 1),
                                           limited(3, 1, "machine", 9, 5)};
  const auto read = read_limits(write_limits(limits) + "broken\n");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(write_limits(read), write_limits(limits));
}

}  // namespace
}  // namespace tandem::job
