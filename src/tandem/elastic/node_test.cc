// An agent that hears of one end in several ways, in every order.
#include "tandem/elastic/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace tandem::elastic {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A node of two workers in view 1, whose processes are the test's to play.
class Pair {
 public:
  explicit Pair(std::chrono::milliseconds leave_limit = std::chrono::hours(1))
      : node({.workers = 2,
              .shards = 2,
              .log = [this](const std::string& line) { log.push_back(line); },
              .leave_limit = leave_limit}) {
    for (const int worker : {0, 1}) start(worker);
    node.serve();
    EXPECT_EQ(view_of(0), 1u);
    EXPECT_EQ(view_of(1), 1u);
  }

  // It is ready.
  void start(int worker) {
    const Node::Ticket ticket = node.open_seat(worker);
    lines_[worker] = PacketSocket(rendezvous::FileDescriptor(::dup(ticket.inherited[0])));
    node.seat_taken(worker);
    say(worker, {.kind = PacketKind::kReady,
                 .second = 2,
                 .text = ready_text({"kernels", std::string(32, 'f')})});
  }
  void say(int worker, const Packet& packet) {
    lines_[worker].send(packet);
    if (packet.kind != PacketKind::kReady) node.serve();
  }
  // It leaves a view that cannot go on.
  void leave_failed(int worker, std::uint64_t view) {
    say(worker, {.kind = PacketKind::kFailed, .view = view, .text = "a peer is gone"});
    say(worker, {.kind = PacketKind::kLeft, .view = view});
  }
  void close_line(int worker) {
    lines_[worker] = PacketSocket();
    node.serve();
  }
  void write(int worker, const std::string& bytes, bool heard = true) {
    ASSERT_GT(::write(lines_[worker].descriptor().get(), bytes.data(), bytes.size()), 0);
    if (heard) node.serve();
  }
  // That the worker was given last, since it was asked; 0: none.
  std::uint64_t view_of(int worker) {
    lines_[worker].read();
    std::uint64_t view = 0;
    while (const auto packet = lines_[worker].take()) {
      if (packet->kind == PacketKind::kRun) view = packet->view;
    }
    return view;
  }

  std::vector<std::string> log;
  Node node;

 private:
  PacketSocket lines_[2];
};

// A peer's report comes first, then the kernel closes the line, and last it says how it ended.
TEST(NodeTest, AViewWaitsToHearHowAWorkerHasEnded) {
  Pair pair;
  pair.leave_failed(0, 1);
  pair.close_line(1);
  EXPECT_EQ(pair.view_of(0), 0u);
  pair.node.worker_ended(1, "was drained", false);
  EXPECT_EQ(pair.view_of(0), 2u);
  EXPECT_THAT(pair.log,
              ElementsAre(HasSubstr("1 of 2 workers go on after step 0: worker 1 was drained")));

  pair.start(1);
  pair.node.serve();
  pair.say(0, {.kind = PacketKind::kLeft, .view = 2, .second = 1});
  EXPECT_EQ(pair.view_of(1), 3u);
  EXPECT_THAT(pair.log.back(), HasSubstr("after step 0: worker 1 is back"));
}

TEST(NodeTest, ALineThatHasEndedIsNotPolled) {
  Pair pair;
  pair.close_line(1);
  std::vector<pollfd> waits;
  pair.node.add_to(waits);
  EXPECT_EQ(waits.size(), 1u);
  EXPECT_GT(pair.node.nap(), std::chrono::milliseconds(0));
}

// Its process lives on.
TEST(NodeTest, AWorkerWithoutALineIsNotWaitedForForEver) {
  Pair pair(std::chrono::milliseconds(20));
  pair.close_line(1);
  std::this_thread::sleep_for(pair.node.nap());
  pair.leave_failed(0, 1);
  EXPECT_EQ(pair.view_of(0), 2u);
  EXPECT_THAT(pair.log.back(), HasSubstr("worker 1 has ended its line"));
  pair.node.worker_ended(1, "was killed by SIGKILL", false);
  EXPECT_EQ(pair.view_of(0), 0u);
}

TEST(NodeTest, AWorkerThatSaysNonsenseIsKilledAndTheViewSaysSo) {
  Pair pair;
  pair.write(1, std::string(64, 'x'));
  EXPECT_THAT(pair.node.take_stuck(), ElementsAre(1));
  pair.leave_failed(0, 1);
  pair.node.worker_ended(1, "was killed by SIGKILL", false);
  EXPECT_EQ(pair.view_of(0), 2u);
  EXPECT_THAT(pair.log.back(), HasSubstr("worker 1 said what makes no sense"));
}

// What it said last may be anything.
TEST(NodeTest, NonsenseAtTheEndIsTheWorkersAlone) {
  Pair pair;
  pair.leave_failed(0, 1);
  pair.write(1, std::string(64, 'x'), /*heard=*/false);
  pair.node.worker_ended(1, "was killed by SIGKILL", false);
  EXPECT_EQ(pair.view_of(0), 2u);
}

}  // namespace
}  // namespace tandem::elastic
