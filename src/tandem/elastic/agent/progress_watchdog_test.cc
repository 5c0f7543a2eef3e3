// The conditions under which a process counts as hung, with a clock of the test.
#include "tandem/elastic/agent/progress_watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace tandem::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(IdleTime, GrowsWhileNoProcessorIsUsed) {
  IdleTime idle_time;
  IdleTime::Clock::time_point now{};
  EXPECT_EQ(idle_time.look(7, now), seconds(0));
  EXPECT_EQ(idle_time.look(7, now += seconds(1)), seconds(1));
  EXPECT_EQ(idle_time.look(7, now += seconds(2)), seconds(3));
  EXPECT_EQ(idle_time.look(8, now += seconds(1)), seconds(0));
  EXPECT_EQ(idle_time.look(8, now += seconds(1)), seconds(1));
}

// Agent and workers of a container that was paused for a night are unchanged.
TEST(IdleTime, AnObserverThatPausesWasStoppedToo) {
  IdleTime idle_time;
  IdleTime::Clock::time_point now{};
  idle_time.look(7, now);
  EXPECT_EQ(idle_time.look(7, now += std::chrono::hours(9)), seconds(2));
}

TEST(IdleTime, TicksGrowWithWork) {
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
      : elastic_agent_({.workers = 1, .shards = 1, .log = [](const std::string&) {}}),
        slots_(1),
        watch_(slots_, elastic_agent_, limit,
               [this](const std::string& line) { log.push_back(line); }) {
    const ElasticAgent::Ticket ticket = elastic_agent_.open_channel(0);
    line_ = PacketSocket(net::FileDescriptor(::dup(ticket.inherited[0])));
    elastic_agent_.channel_taken(0);
    launch::WorkerStart start;
    start.command = {"/bin/sh", "-c", "while :; do :; done"};
    slots_[0].process.emplace(start);
  }
  void send_packet(PacketKind kind) {
    line_.send({.kind = kind});
    elastic_agent_.serve();
  }
  bool look() {
    watch_.look();
    return slots_[0].stuck;
  }

  std::vector<std::string> log;

 private:
  ElasticAgent elastic_agent_;
  std::vector<WorkerSlot> slots_;
  ProgressWatchdog watch_;
  PacketSocket line_;
};

// Model and data may have any size; the decision where the job begins is fast.
TEST(ProgressWatchdog, AWorkingProcessIsLeftAloneUnlessItDecides) {
  constexpr milliseconds kLimit{2000};
  Busy reads(kLimit), decides(kLimit), has_decided(kLimit);
  decides.send_packet(PacketKind::kAsk);
  has_decided.send_packet(PacketKind::kAsk);
  has_decided.send_packet(PacketKind::kDecided);
  const auto least = IdleTime::Clock::now() + 2 * kLimit;
  const auto most = least + 20 * kLimit;
  bool killed = false;
  for (auto now = least - 2 * kLimit; now < least || (!killed && now < most);
       now = IdleTime::Clock::now()) {
    std::this_thread::sleep_for(milliseconds(10));
    EXPECT_FALSE(reads.look() || has_decided.look());
    killed = decides.look();
  }
  ASSERT_TRUE(killed);
  EXPECT_THAT(decides.log,
              ElementsAre(HasSubstr("has been deciding for 2 s where the job begins")));
}

}  // namespace
}  // namespace tandem::elastic
