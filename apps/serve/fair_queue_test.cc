#include "apps/serve/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::apps {
namespace {

using ::testing::ElementsAre;
using Queue = FairQueue<int>;

// Items are numbers; those of an address begin with its hundred.
void push(Queue& queue, const std::string& address, int first, int count) {
  for (int i = 0; i < count; ++i) queue.push(address, first + i);
}

std::vector<int> started(Queue& queue) {
  std::vector<int> items;
  while (const auto item = queue.start_next()) items.push_back(*item);
  return items;
}

TEST(FairQueue, OneAddressIsServedInOrderAndLeavesHalfOfTheSlots) {
  Queue queue(4);
  push(queue, "a", 100, 5);
  EXPECT_THAT(started(queue), ElementsAre(100, 101));
  EXPECT_EQ(queue.waiting(), 3u);
  push(queue, "b", 200, 1);
  EXPECT_THAT(started(queue), ElementsAre(200));
  queue.finished("a");
  EXPECT_THAT(started(queue), ElementsAre(102));
  EXPECT_EQ(queue.running(), 3u);
}

TEST(FairQueue, AddressesTakeTurns) {
  Queue queue(3);
  push(queue, "a", 100, 50);
  push(queue, "b", 200, 2);
  push(queue, "c", 300, 2);
  EXPECT_THAT(started(queue), ElementsAre(100, 200, 300));
  queue.finished("a");
  EXPECT_THAT(started(queue), ElementsAre(101));  // the only one with nothing running
  queue.finished("b");
  EXPECT_THAT(started(queue), ElementsAre(201));
  queue.finished("b");
  queue.finished("c");
  EXPECT_THAT(started(queue), ElementsAre(301));
  EXPECT_EQ(queue.waiting(), 48u);
}

// With a single slot the address that was not served for longest is next.
TEST(FairQueue, ALateAddressComesBeforeTheQueueOfAnother) {
  Queue queue(1);
  push(queue, "a", 100, 50);
  EXPECT_THAT(started(queue), ElementsAre(100));
  push(queue, "b", 200, 1);
  queue.finished("a");
  EXPECT_THAT(started(queue), ElementsAre(200));
  queue.finished("b");
  EXPECT_THAT(started(queue), ElementsAre(101));
}

TEST(FairQueue, WaitingItemsCanBeTakenOut) {
  Queue queue(1);
  push(queue, "a", 100, 3);
  EXPECT_THAT(started(queue), ElementsAre(100));
  EXPECT_TRUE(queue.remove("a", 101));
  EXPECT_FALSE(queue.remove("a", 101));
  EXPECT_FALSE(queue.remove("a", 100));  // it runs
  EXPECT_FALSE(queue.remove("b", 100));
  queue.finished("a");
  EXPECT_THAT(started(queue), ElementsAre(102));
  queue.finished("a");
  EXPECT_EQ(queue.running() + queue.waiting(), 0u);
}

}  // namespace
}  // namespace tandem::apps
