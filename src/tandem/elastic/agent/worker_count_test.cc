#include "tandem/elastic/agent/worker_count.h"

#include <gtest/gtest.h>

namespace tandem::elastic {
namespace {

membership::Member node(membership::NodeId id, std::uint32_t workers) {
  membership::Member member;
  member.peer.id = id;
  member.workers = workers;
  return member;
}

using Members = std::vector<membership::Member>;

TEST(WorkerCountTest, EachNodeCountsItsOwnWorkers) {
  WorkerCount of_3(3, 2, 0), of_4(4, 2, 1);
  for (WorkerCount* count : {&of_3, &of_4})
    count->note_view(Members{node(1, 3), node(2, 4)}, count == &of_3 ? 1 : 2);
  EXPECT_EQ(of_3.total(), 7);
  EXPECT_EQ(of_4.total(), 7);
}

TEST(WorkerCountTest, WorkersAndNodesThatAreGoneStillCount) {
  WorkerCount count(3, 2, 0);
  count.note_view(Members{node(1, 3), node(2, 4)}, 1);
  count.note_view(Members{node(1, 3), node(2, 1)}, 1);
  EXPECT_EQ(count.total(), 7) << "3 workers of node 2 died";
  count.note_view(Members{node(1, 2)}, 1);
  EXPECT_EQ(count.total(), 7) << "node 2 is lost, and a worker of this node";
}

TEST(WorkerCountTest, ANodeTakesThePlaceOfALostOne) {
  WorkerCount count(3, 2, 0);
  count.note_view(Members{node(1, 3), node(2, 4)}, 1);
  count.note_view(Members{node(1, 3)}, 1);
  count.note_view(Members{node(1, 3), node(5, 2)}, 1);
  EXPECT_EQ(count.total(), 5);
  count.note_view(Members{node(1, 3)}, 1);
  EXPECT_EQ(count.total(), 5);
}

TEST(WorkerCountTest, TwoNodesInOneViewMayReplaceEachOther) {
  WorkerCount count(1, 3, 0);
  count.note_view(Members{node(1, 1), node(2, 4), node(3, 2)}, 1);
  count.note_view(Members{node(1, 1), node(4, 6)}, 1);
  EXPECT_EQ(count.total(), 1 + 6 + 2) << "node 4 replaces node 2, and node 3 is missing";
}

TEST(WorkerCountTest, ANodeThatNeverCameCountsAsThisOne) {
  WorkerCount count(3, 2, 0);
  count.note_view(Members{node(1, 2)}, 1);
  EXPECT_EQ(count.total(), 6);
}

TEST(WorkerCountTest, TheLaunchersNumberIsTheJobs) {
  WorkerCount count(3, 2, 4);
  count.note_view(Members{node(1, 3)}, 1);
  EXPECT_EQ(count.total(), 4);
}

}  // namespace
}  // namespace tandem::elastic
