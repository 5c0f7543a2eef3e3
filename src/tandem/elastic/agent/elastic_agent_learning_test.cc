// A node that learns during a job, and messages that are lost, repeated or forged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/elastic/agent/test_agents.h"

namespace tandem::elastic {

static void PrintTo(const Packet& packet, std::ostream* out) {
  *out << "packet of kind " << static_cast<int>(packet.kind) << ", " << packet.second << ", "
       << packet.text.size() << " bytes";
}

namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using std::chrono::milliseconds;
using testing::Lone;

// An unwanted event would have happened long before.
constexpr milliseconds kLearningGlance{300};
constexpr milliseconds kAsksEvery = membership::Limits{}.ask;

Packet learned(std::uint64_t transfer, Learned what, std::string why = "") {
  return {PacketKind::kLearned, transfer, static_cast<std::uint64_t>(what), 3, std::move(why)};
}
Packet learns_at(std::uint64_t transfer, std::string endpoint) {
  return {.kind = PacketKind::kLearnsAt, .view = transfer, .text = std::move(endpoint)};
}

class NodeLearning : public testing::TwoNodes {
 protected:
  explicit NodeLearning(int workers_of_second = 1) : TwoNodes(workers_of_second) {}

  // The first node computes, and the second one has ordered its worker to learn.
  void SetUp() override {
    first.be_ready();
    until([&] { return first.ranks == 1; });
    for (std::uint64_t step = 1; step < 4; ++step) first.apply(step);
    serve_for(kAsksEvery * 3);  // the second one knows the job
    second.be_ready();
    until([&] { return !second.learns.empty(); });
    ASSERT_THAT(second.learns, ElementsAre(1u));
  }
  // The learner does not have the newest step, and the first node computes alone.
  void expect_no_change() {
    serve_for(kLearningGlance);
    EXPECT_TRUE(second.node().learns());
    EXPECT_EQ(first.ranks, 1);
    EXPECT_EQ(second.ranks, 0);
  }
  std::size_t times(const Lone& lone, const std::string& text) {
    return static_cast<std::size_t>(std::ranges::count_if(
        lone.log, [&](const std::string& line) { return line.find(text) != line.npos; }));
  }
};

TEST_F(NodeLearning, IsAMemberWhenItIsLevel) {
  second.send_packet(learns_at(1, "a place"));
  until([&] { return !first.taught.empty(); });
  EXPECT_THAT(first.taught, ElementsAre("a place"));
  expect_no_change();
  second.send_packet(learned(1, Learned::kLevel));
  until_both_compute();
  EXPECT_THAT(second.log, Contains(HasSubstr("the state of step 3 is here")));
}

TEST_F(NodeLearning, RepeatedMessagesChangeNothing) {
  for (int i = 0; i < 2; ++i) second.send_packet(learns_at(1, "a place"));
  until([&] { return first.taught.size() == 2; });
  for (int i = 0; i < 3; ++i) second.send_packet(learned(1, Learned::kLevel));
  until_both_compute();
  second.send_packet(learned(1, Learned::kNever, "sent too late"));
  second.send_packet(learned(1, Learned::kNothing, "sent too late"));
  second.send_packet(learns_at(1, "another place"));
  serve_for(kLearningGlance);
  EXPECT_EQ(times(second, "this node joins"), 1u);
  EXPECT_THAT(second.log, Each(Not(HasSubstr("sent too late"))));
  EXPECT_EQ(first.taught.size(), 2u) << "a member requests no state";
  EXPECT_EQ(first.ranks, 2);
  EXPECT_FALSE(first.node().end() || second.node().end());
}

TEST_F(NodeLearning, MessagesOfAnotherTransferAreIgnored) {
  for (const std::uint64_t transfer : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    second.send_packet(learns_at(transfer, "a place"));
    second.send_packet(learned(transfer, Learned::kLevel));
    second.send_packet(learned(transfer, Learned::kNever));
  }
  expect_no_change();
  EXPECT_THAT(first.taught, IsEmpty());
  // A failed attempt is over: its late messages belong to an old state transfer, too.
  second.send_packet(learned(1, Learned::kNothing, "no node came"));
  until([&] { return second.learns.size() == 2; });
  second.send_packet(learned(1, Learned::kLevel));
  expect_no_change();
  second.send_packet(learned(2, Learned::kLevel));
  until_both_compute();
}

TEST_F(NodeLearning, ANodeThatCannotLearnIsAMemberAllTheSame) {
  second.send_packet(learned(1, Learned::kNever, "not with this optimizer"));
  until_both_compute();
  EXPECT_THAT(second.log, Contains(AllOf(HasSubstr("not with this optimizer"),
                                         HasSubstr("it comes inside the first view"))));
}

TEST_F(NodeLearning, AsksThreeTimes) {
  for (std::uint64_t transfer = 1; transfer < 4; ++transfer) {
    until([&] { return second.learns.size() == transfer; });
    EXPECT_EQ(second.learns.back(), transfer);
    second.send_packet(learned(transfer, Learned::kNothing, "no node came"));
  }
  until_both_compute();
  EXPECT_EQ(times(second, "another node is asked"), 2u);
  EXPECT_EQ(times(second, "it comes inside the first view"), 1u);
  EXPECT_EQ(second.learns.size(), 3u);
}

// No worker of this program does this: it is killed, and the next one learns from the beginning.
class Nonsense : public NodeLearning, public ::testing::WithParamInterface<Packet> {};

TEST_P(Nonsense, EndsTheWorkerThatLearns) {
  second.send_packet(GetParam());
  std::vector<int> stuck;
  until([&] {
    stuck = second.node().take_stuck();
    return !stuck.empty();
  });
  EXPECT_THAT(stuck, ElementsAre(0));
  expect_no_change();
  EXPECT_THAT(first.taught, IsEmpty());
  second.node().worker_ended(0, "was killed by SIGKILL", false);
  second.start();
  second.be_ready();
  until([&] { return second.learns.size() == 2; });
  second.send_packet(learned(second.learns.back(), Learned::kLevel));
  until_both_compute();
}

INSTANTIATE_TEST_SUITE_P(AppMessageFrom, Nonsense,
                         ::testing::Values(learned(1, static_cast<Learned>(77)),
                                           learned(1, static_cast<Learned>(~0ull)),
                                           learns_at(1, std::string(5000, 'x'))));

// Another agent of the job, played by the test: it has the token, and was never asked anything.
class Unknown {
 public:
  explicit Unknown(const std::string& token)
      : Unknown(token, net::listen_tcp(/*loopback_only=*/true, 0)) {}
  void reply_to(const Lone& lone, const std::string& endpoint) {
    links_.send({0, lone.node().address()},
                membership::AppMessage{membership::AppMessageKind::kLearner, {}, endpoint});
  }
  void serve() { links_.serve(); }

 private:
  Unknown(const std::string& token, net::FileDescriptor listener)
      : self_{4711, fmt::format("127.0.0.1:{}", net::local_port(listener))},
        links_(std::move(listener),
               {.self = self_, .job = 0, .token = token, .log = [](const std::string&) {}}) {}
  membership::Peer self_;
  AgentLinks links_;
};

// Members that do not lead do not know the joining nodes, so they trust any node with the token.
TEST_F(NodeLearning, AMemberServesUnknownNodesButNoUnauthenticatedPeer) {
  Unknown known(testing::kToken), unauthenticated_peer("another token");
  unauthenticated_peer.reply_to(first, "an unauthenticated peer's");
  known.reply_to(first, "of an agent of the job");
  until([&] {
    known.serve();
    unauthenticated_peer.serve();
    return !first.taught.empty();
  });
  for (int i = 0; i < 3; ++i) known.reply_to(first, std::string(5000, 'x'));
  const auto end = std::chrono::steady_clock::now() + kLearningGlance;
  while (std::chrono::steady_clock::now() < end) {
    serve();
    known.serve();
    unauthenticated_peer.serve();
  }
  EXPECT_THAT(first.taught, ElementsAre("of an agent of the job"));
  EXPECT_EQ(first.ranks, 1);
}

// A node that computes in no view has no worker that could send the state.
TEST_F(NodeLearning, ALearnerServesNoState) {
  Unknown known(testing::kToken);
  known.reply_to(second, "a place");
  const auto end = std::chrono::steady_clock::now() + kLearningGlance;
  while (std::chrono::steady_clock::now() < end) {
    serve();
    known.serve();
  }
  EXPECT_THAT(second.taught, IsEmpty());
  expect_no_change();
}

class NodeLearningOfTwo : public NodeLearning {
 protected:
  NodeLearningOfTwo() : NodeLearning(/*workers_of_second=*/2) {}
};

TEST_F(NodeLearningOfTwo, MessagesOfAWorkerThatDoesNotLearnAreIgnored) {
  second.send_packet(learns_at(1, "a place"), 1);
  second.send_packet(learned(1, Learned::kLevel), 1);
  second.send_packet(learned(1, Learned::kNothing), 1);
  expect_no_change();
  EXPECT_THAT(first.taught, IsEmpty());
}

}  // namespace
}  // namespace tandem::elastic
