#include "tandem/elastic/agent/damaged_links.h"

#include <gtest/gtest.h>

namespace tandem::elastic {
namespace {

using Clock = DamagedLinks::Clock;
using std::chrono::minutes;
using std::chrono::seconds;

class DamagedLinksTest : public ::testing::Test {
 protected:
  static std::vector<membership::Member> members(int count) {
    std::vector<membership::Member> result(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < result.size(); ++i) result[i].peer.id = 10 + i;
    return result;
  }
  DamagedLinks links_;
  const Clock::time_point start_ = Clock::now();
};

TEST_F(DamagedLinksTest, TheLaterOfTwoNodesLeavesAfterFiveFramesInEitherDirection) {
  for (std::size_t i = 1; i <= 5; ++i) {
    EXPECT_FALSE(links_.leaves(members(2), start_)) << i;
    const membership::NodeId from = 10 + i % 2;
    EXPECT_EQ(links_.add(from, 21 - from, start_), i);
  }
  EXPECT_EQ(links_.leaves(members(2), start_), 11u);
}

TEST_F(DamagedLinksTest, OldDamageIsForgotten) {
  for (int i = 0; i < 4; ++i) links_.add(10, 11, start_);
  EXPECT_EQ(links_.add(10, 11, start_ + minutes(11)), 1u);
  EXPECT_FALSE(links_.leaves(members(2), start_ + minutes(11)));
  for (int i = 0; i < 4; ++i) links_.add(10, 11, start_ + minutes(12));
  EXPECT_EQ(links_.leaves(members(2), start_ + minutes(12)), 11u);
  EXPECT_FALSE(links_.leaves(members(2), start_ + minutes(23)));
}

// The network card of the first node is bad: it damages frames of both links.
TEST_F(DamagedLinksTest, TheNodeWithMoreDamageLeaves) {
  for (int i = 0; i < 4; ++i) links_.add(10, 12, start_);
  for (int i = 0; i < 5; ++i) links_.add(11, 10, start_);
  EXPECT_EQ(links_.leaves(members(3), start_), 10u);
}

TEST_F(DamagedLinksTest, RareDamageOnManyLinksMakesNoNodeLeave) {
  for (int i = 0; i < 4; ++i) {
    links_.add(10, 11, start_);
    links_.add(11, 12, start_);
    links_.add(12, 10, start_);
  }
  EXPECT_FALSE(links_.leaves(members(3), start_));
}

// Nodes that have left, or return with new ids, are not members.
TEST_F(DamagedLinksTest, OnlyMembersLeave) {
  for (int i = 0; i < 5; ++i) links_.add(10, 77, start_);
  EXPECT_FALSE(links_.leaves(members(3), start_));
}

}  // namespace
}  // namespace tandem::elastic
