// The conditions under which a process counts as hung, with a clock of the test.
#include "tandem/launch/hang_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace tandem::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Stillness, GrowsWhileNoProcessorIsUsed) {
  Stillness stillness;
  Stillness::Clock::time_point now{};
  EXPECT_EQ(stillness.look(7, now), seconds(0));
  EXPECT_EQ(stillness.look(7, now += seconds(1)), seconds(1));
  EXPECT_EQ(stillness.look(7, now += seconds(2)), seconds(3));
  EXPECT_EQ(stillness.look(8, now += seconds(1)), seconds(0));
  EXPECT_EQ(stillness.look(8, now += seconds(1)), seconds(1));
}

// Agent and workers of a container that was paused for a night are unchanged.
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

// The first worker of a node, whose use of the processor and messages the test controls.
class Busy {
 public:
  explicit Busy(milliseconds limit)
      : node_({.workers = 1, .shards = 1, .log = [](const std::string&) {}}),
        members_(1),
        watch_(members_, node_, limit, [this](const std::string& line) { log.push_back(line); }) {
    const elastic::Node::Ticket ticket = node_.open_seat(0);
    line_ = elastic::PacketSocket(rendezvous::FileDescriptor(::dup(ticket.inherited[0])));
    node_.seat_taken(0);
    WorkerStart start;
    start.command = {"/bin/sh", "-c", "while :; do :; done"};
    members_[0].process.emplace(start);
  }
  void say(elastic::PacketKind kind) {
    line_.send({.kind = kind});
    node_.serve();
  }
  bool look() {
    watch_.look();
    return members_[0].stuck;
  }

  std::vector<std::string> log;

 private:
  elastic::Node node_;
  std::vector<ElasticMember> members_;
  HangWatch watch_;
  elastic::PacketSocket line_;
};

// Model and data may have any size; the decision where the job begins is fast.
TEST(HangWatch, WhoWorksIsLeftAloneUnlessItDecides) {
  constexpr milliseconds kLimit{2000};
  Busy reads(kLimit), decides(kLimit), has_decided(kLimit);
  decides.say(elastic::PacketKind::kAsk);
  has_decided.say(elastic::PacketKind::kAsk);
  has_decided.say(elastic::PacketKind::kDecided);
  const auto least = Stillness::Clock::now() + 2 * kLimit;
  const auto most = least + 20 * kLimit;
  bool killed = false;
  for (auto now = least - 2 * kLimit; now < least || (!killed && now < most);
       now = Stillness::Clock::now()) {
    std::this_thread::sleep_for(milliseconds(10));
    EXPECT_FALSE(reads.look() || has_decided.look());
    killed = decides.look();
  }
  ASSERT_TRUE(killed);
  EXPECT_THAT(decides.log,
              ElementsAre(HasSubstr("has been deciding for 2 s where the job begins")));
}

}  // namespace
}  // namespace tandem::launch
