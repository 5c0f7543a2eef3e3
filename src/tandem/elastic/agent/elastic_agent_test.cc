// An agent that gets several reports of one end, in every order.
#include "tandem/elastic/agent/elastic_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "tandem/elastic/agent/test_agents.h"
#include "tandem/net/event_loop.h"

namespace tandem::elastic {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using std::chrono::milliseconds;

struct Limits {
  milliseconds leave = std::chrono::hours(1);
  milliseconds late = std::chrono::hours(1);
};

// A node of two workers; the test acts as their processes.
class Pair {
 public:
  explicit Pair(Limits limits = {}, bool both_ready = true)
      : node({.workers = 2,
              .shards = 2,
              .log = [this](const std::string& line) { log.push_back(line); },
              .print = [this](int, const std::string& lines) { log.push_back(lines); },
              .late_limit = limits.late,
              .leave_limit = limits.leave}) {
    for (const int worker : {0, 1}) start(worker);
    send_packet(0, testing::ready());
    if (!both_ready) return;
    send_packet(1, testing::ready());
    EXPECT_EQ(view_of(0), 1u);
    EXPECT_EQ(view_of(1), 1u);
  }

  void start(int worker) {
    const ElasticAgent::Ticket ticket = node.open_channel(worker);
    lines_[worker] = PacketSocket(net::FileDescriptor(::dup(ticket.inherited[0])));
    node.channel_taken(worker);
  }
  void send_packet(int worker, const Packet& packet) {
    lines_[worker].send(packet);
    node.serve();
  }
  // Until the next deadline of the node.
  void sleep() const {
    net::EventLoop loop;
    node.add_to(loop);
    EXPECT_FALSE(loop.run_once(std::chrono::minutes(1)));
  }
  // The worker leaves a view that cannot continue.
  void leave_failed(int worker, std::uint64_t view) {
    send_packet(worker,
                {.kind = PacketKind::kFailed, .view = view, .text = "the state arrived damaged"});
    send_packet(worker, {.kind = PacketKind::kLeft, .view = view});
  }
  void close_line(int worker) {
    lines_[worker] = PacketSocket();
    node.serve();
  }
  void write(int worker, const std::string& bytes) {
    ASSERT_GT(::write(lines_[worker].descriptor().get(), bytes.data(), bytes.size()), 0);
  }
  // The view that the worker got last, since it was asked; 0: none.
  std::uint64_t view_of(int worker) {
    lines_[worker].read();
    std::uint64_t view = 0;
    while (const auto packet = lines_[worker].take()) {
      if (packet->kind == PacketKind::kRun) view = packet->view;
    }
    return view;
  }
  // Both fail in one view after another until they get none; returns the number of views.
  int fail_until_the_end() {
    int failed = 0;
    for (std::uint64_t view = view_of(0); view != 0 && failed < 100; view = view_of(0)) {
      for (const int worker : {0, 1}) leave_failed(worker, view);
      ++failed;
    }
    return failed;
  }

  std::vector<std::string> log;
  ElasticAgent node;

 private:
  PacketSocket lines_[2];
};

// A peer's report comes first, then the kernel closes the channel, and finally the exit status
// arrives.
TEST(NodeTest, AViewWaitsForTheExitStatusOfAWorker) {
  Pair pair;
  pair.leave_failed(0, 1);
  pair.close_line(1);
  EXPECT_EQ(pair.view_of(0), 0u);
  pair.node.worker_ended(1, "was drained", false);
  EXPECT_EQ(pair.view_of(0), 2u);
  EXPECT_THAT(pair.log,
              ElementsAre(HasSubstr("1 of 2 workers continue after step 0: worker 1 was drained")));

  pair.start(1);
  pair.send_packet(1, testing::ready());
  pair.send_packet(0, {.kind = PacketKind::kLeft, .view = 2, .second = 1});
  EXPECT_EQ(pair.view_of(1), 3u);
  EXPECT_THAT(pair.log.back(), HasSubstr("after step 0: worker 1 is back"));
}

TEST(NodeTest, ALineThatHasEndedIsNotPolled) {
  Pair pair;
  pair.close_line(1);
  net::EventLoop loop;
  pair.node.add_to(loop);
  EXPECT_EQ(loop.waits().size(), 1u);
  EXPECT_FALSE(loop.run_once(std::chrono::milliseconds(0)));
}

// Its process continues to run.
TEST(NodeTest, TheWaitForAWorkerWithoutAConnectionIsBounded) {
  Pair pair({.leave = milliseconds(20)});
  pair.close_line(1);
  pair.sleep();
  pair.leave_failed(0, 1);
  EXPECT_EQ(pair.view_of(0), 2u);
  EXPECT_THAT(pair.log.back(), HasSubstr("worker 1 has ended its line"));
  pair.node.worker_ended(1, "was killed by SIGKILL", false);
  EXPECT_EQ(pair.view_of(0), 0u);
}

TEST(NodeTest, AWorkerThatSendsNonsenseIsKilledAndTheViewNamesIt) {
  Pair pair;
  pair.write(1, std::string(64, 'x'));
  pair.node.serve();
  EXPECT_THAT(pair.node.take_stuck(), ElementsAre(1));
  pair.leave_failed(0, 1);
  pair.node.worker_ended(1, "was killed by SIGKILL", false);
  EXPECT_EQ(pair.view_of(0), 2u);
  EXPECT_THAT(pair.log.back(), HasSubstr("worker 1 sent an invalid message"));
}

// Its last message may be any message.
TEST(NodeTest, NonsenseAtTheEndIsTheWorkersAlone) {
  Pair pair;
  pair.leave_failed(0, 1);
  pair.write(1, std::string(64, 'x'));
  pair.node.worker_ended(1, "was killed by SIGKILL", false);
  EXPECT_EQ(pair.view_of(0), 2u);
  pair.start(1);
  EXPECT_THAT(pair.node.take_stuck(), IsEmpty()) << "its successor would be killed";
}

TEST(NodeTest, TheFirstViewDoesNotWaitForLateWorkers) {
  Pair patient({}, /*both_ready=*/false);
  EXPECT_EQ(patient.view_of(0), 0u);

  Pair pair({.late = milliseconds(20)}, /*both_ready=*/false);
  pair.sleep();
  pair.node.serve();
  EXPECT_EQ(pair.view_of(0), 1u);
  EXPECT_THAT(pair.log, ElementsAre(HasSubstr("worker 1 is not ready"), HasSubstr("1 of 2")));
  pair.send_packet(1, testing::ready());
  pair.send_packet(0, {.kind = PacketKind::kLeft, .view = 1, .second = 1});
  EXPECT_EQ(pair.view_of(1), 2u);
}

TEST(NodeTest, RepeatedFailedViewsEndTheJobAndNameTheReport) {
  Pair pair;
  pair.leave_failed(0, 1);
  pair.leave_failed(1, 1);
  EXPECT_EQ(pair.fail_until_the_end(), 4);
  ASSERT_TRUE(pair.node.end());
  EXPECT_EQ(pair.node.end()->code, 200);
  EXPECT_THAT(
      pair.node.end()->message,
      AllOf(HasSubstr("5 views one after another"),
            HasSubstr("worker 0 reported: the state arrived damaged; so this node gives up")));
}

TEST(NodeTest, AStepOrALossResetsTheCountOfFailedViews) {
  Pair pair;
  pair.send_packet(0,
                   {.kind = PacketKind::kApplied, .view = 1, .first = 1, .text = record_text({})});
  for (const int worker : {0, 1}) pair.leave_failed(worker, 1);
  for (std::uint64_t view = 2; view < 9; ++view) {
    for (const int worker : {0, 1}) pair.leave_failed(worker, view);
  }
  pair.leave_failed(0, 9);
  pair.node.worker_ended(1, "was killed by SIGKILL", false);
  pair.start(1);
  pair.send_packet(1, testing::ready());
  pair.send_packet(0, {.kind = PacketKind::kLeft, .view = 10, .second = 1});
  EXPECT_EQ(pair.fail_until_the_end(), 10);
  ASSERT_TRUE(pair.node.end());
  EXPECT_THAT(pair.node.end()->message,
              AllOf(HasSubstr("10 views one after another"), HasSubstr("so the job ends")));
}

// Damaged frames have a limit of their own, which names the link.
TEST(FailedViewsTest, AViewThatADamagedFrameEndsIsNotCounted) {
  std::vector<membership::Member> members(2);
  members[1].peer.id = 1;
  FailedViews views;
  std::uint64_t number = 0;
  const auto fail = [&](bool damaged) {
    views.begin_view(/*is_level=*/true);
    ++number;
    for (int worker = 0; worker < 2; ++worker) {
      views.report(worker, "the connection was closed");
      if (damaged && views.is_news(number)) views.damage(members[0], members[1], members, "");
    }
    return views.too_many(/*same=*/true);
  };
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(fail(/*damaged=*/true));
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(fail(/*damaged=*/false));
  EXPECT_TRUE(fail(/*damaged=*/false));
  EXPECT_TRUE(views.driven_out().empty());
  EXPECT_FALSE(fail(/*damaged=*/true));
  EXPECT_FALSE(views.driven_out().empty());
}

// Each view begins with the job's progress, as the one before did.
TEST(NodeTest, WhereAViewBeginsIsNoProgress) {
  const auto failures = [](Pair& pair, std::uint64_t advanced) {
    int failed = 0;
    for (std::uint64_t view = 1; view != 0 && failed < 20; view = pair.view_of(0)) {
      pair.send_packet(0, {PacketKind::kProgress, view, 0, advanced, "after step 7"});
      for (const int worker : {0, 1}) pair.leave_failed(worker, view);
      ++failed;
    }
    return failed;
  };
  Pair failing, working;
  EXPECT_EQ(failures(failing, 0), 5);
  EXPECT_TRUE(failing.node.end());
  EXPECT_EQ(failures(working, 1), 20);
}

// The line of a view is logged before a worker gets the view, and so before lines of its steps. A
// line of the view before that arrives late is not printed.
TEST(NodeTest, LinesOfStepsFollowTheLineOfTheirView) {
  Pair pair;
  const auto print = [&](std::uint64_t view, const std::string& line) {
    pair.send_packet(0, {PacketKind::kProgress, view, line.size(), 1, line});
  };
  print(1, "step 1\n");
  pair.leave_failed(0, 1);
  pair.node.worker_ended(1, "was killed by SIGKILL", false);
  const std::vector<std::string> before_the_view = pair.log;
  ASSERT_EQ(pair.view_of(0), 2u);
  EXPECT_THAT(before_the_view,
              ElementsAre("step 1\n", HasSubstr("1 of 2 workers continue after step 0")));
  print(1, "late\n");
  print(2, "step 2\n");
  EXPECT_THAT(pair.log, ElementsAre("step 1\n", HasSubstr("workers continue"), "step 2\n"));
}

TEST(NodeTest, ARestartedWorkerHasNotContributedYet) {
  Pair pair;
  const auto apply = [&](std::uint64_t view, std::uint64_t step) {
    pair.send_packet(0, {PacketKind::kApplied, view, step, 0, record_text({})});
  };
  EXPECT_FALSE(pair.node.has_helped(1));
  apply(1, 1);
  EXPECT_TRUE(pair.node.has_helped(0) && pair.node.has_helped(1));
  pair.leave_failed(0, 1);
  pair.node.worker_ended(1, "was killed by SIGKILL", false);
  pair.start(1);
  apply(2, 2);
  pair.send_packet(1, testing::ready());
  pair.send_packet(0, {.kind = PacketKind::kLeft, .view = 2, .first = 2, .second = 1});
  EXPECT_FALSE(pair.node.has_helped(1));
  apply(3, 3);
  EXPECT_TRUE(pair.node.has_helped(1));
}

class NodesAgain : public testing::TwoNodes {};

// The node has contributed before, and receives steps that the other has applied meanwhile. But now
// no view with it completes a step: it gives up, and the job continues without it.
TEST_F(NodesAgain, ANodeThatComesBackIsAuthenticatedAgain) {
  first.be_ready();
  second.be_ready();
  until_both_compute();
  for (testing::Lone* lone : {&first, &second}) lone->apply(1);
  second.node().worker_ended(0, "was killed by SIGKILL", false);
  until([&] { return first.ranks == 1; });
  for (std::uint64_t step = 2; step < 6; ++step) first.apply(step);
  second.start();
  second.be_ready();
  int failed = 0;
  for (; !second.node().end() && failed < 20; ++failed) {
    until_both_compute();
    second.apply(5);
    first.fail();
    second.fail();
    until([&] { return second.node().end() || (first.ranks == 2 && second.ranks == 2); });
  }
  EXPECT_EQ(failed, 5);
  EXPECT_THAT(second.node().end()->message, HasSubstr("so this node gives up"));
  EXPECT_FALSE(first.node().end());
}

}  // namespace
}  // namespace tandem::elastic
