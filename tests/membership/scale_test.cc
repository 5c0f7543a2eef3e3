// Large jobs: what a change of the view costs, how long a learner takes, and what is left of the
// speed of a job whose nodes fail.
#include "membership/scale.h"

#include <gtest/gtest.h>

#include <iostream>
#include <vector>

#include "membership/crowd.h"
#include "tandem/core/error.h"
#include "tandem/elastic/protocol/goodput.h"

namespace tandem::simulation {
namespace {

using membership::NodeFailures;
using membership::steps_with_failures;

// Three rounds whatever the size; a few messages per node. Every agent is production's.
class Crowds : public testing::TestWithParam<std::size_t> {};

TEST_P(Crowds, ChangeTheirViewInThreeRounds) {
  const std::size_t nodes = GetParam();
  Crowd crowd(nodes, {});
  const auto expect_change = [&](const char* what, const ViewChange& change, std::size_t per_node) {
    EXPECT_EQ(crowd.violation(), "") << what;
    EXPECT_EQ(change.rounds, 3) << what;
    EXPECT_LE(change.messages, per_node * nodes) << what;
    std::cout << nodes << " nodes, " << what << ": " << change.messages << " messages, "
              << change.bytes << " bytes, " << 1e3 * change.seconds << " ms\n";
  };
  expect_change("rendezvous", crowd.meet(), 8);
  expect_change("a member is lost", crowd.lose(nodes / 2), 5);
  expect_change("the first is lost", crowd.lose(0), 6);
  expect_change("a host falls silent", crowd.silence(nodes / 3), 5 + 2 * 5);
  expect_change("a host joins", crowd.join(), 5 + 2 * 5);
  EXPECT_EQ(crowd.members(), nodes - 2);
}

INSTANTIATE_TEST_SUITE_P(Nodes, Crowds, testing::Values(16, 256, 1024));

// All receive it, and only the first members send it to all others.
TEST_P(Crowds, EndWithFewMessages) {
  const std::size_t nodes = GetParam();
  for (const bool fails : {false, true}) {
    Crowd crowd(nodes, {});
    crowd.meet();
    const ViewChange end = fails ? crowd.fail(nodes - 1) : crowd.finish();
    EXPECT_EQ(crowd.violation(), "");
    EXPECT_LE(end.messages, 36 * nodes);
    EXPECT_LE(end.seconds, 1);
  }
}

TEST(Scale, ALearnerBecomesLevelInTheTimeOfItsLink) {
  const Network network;
  const std::uint64_t state = 1'300'000'000;
  const double copy = static_cast<double>(state) / network.bytes_per_second;
  for (const double step : {0.5, 5.0}) {
    const Transfer transfer = learn(state, state / 3, step, network);
    EXPECT_GE(transfer.seconds, copy);
    EXPECT_LE(transfer.seconds, 3 * copy + 2 * step);
    EXPECT_LE(transfer.chunks, 2 * state / (4 << 20));
    std::cout << "step " << step << " s: level after " << transfer.seconds << " s, "
              << transfer.chunks << " chunks\n";
  }
}

TEST(Goodput, OfTheSimplestCases) {
  const std::vector<double> speed{1, 2};
  EXPECT_DOUBLE_EQ(steps_with_failures(speed, {.mtbf_seconds = 1e9}), 2);
  // Each is there half of the time: none 1/4, one 1/2, both 1/4.
  const NodeFailures half{.mtbf_seconds = 1000, .absence_seconds = 1000};
  EXPECT_NEAR(steps_with_failures(speed, half), 0.5 * 1 + 0.25 * 2, 1e-12);
  NodeFailures both = half;
  both.min_nodes = 2;
  EXPECT_NEAR(steps_with_failures(speed, both), 0.25 * 2, 1e-12);
  // One loss and one join every 1,000 s, 10 s each.
  NodeFailures pauses = half;
  pauses.loss_seconds = pauses.join_seconds = 10;
  EXPECT_NEAR(steps_with_failures(speed, pauses), 1 - 0.02, 1e-12);
  const std::vector<double> many(4096, 1.0);
  EXPECT_NEAR(steps_with_failures(many, half), 1, 1e-9);
  EXPECT_EQ(steps_with_failures(speed, {.mtbf_seconds = 1, .loss_seconds = 10}), 0);
  EXPECT_THROW(steps_with_failures(speed, {}), InvalidArgument);
}

double seconds_of_a_loss(std::size_t nodes) {
  Crowd crowd(nodes, {});
  crowd.meet();
  return crowd.lose(nodes / 2).seconds;
}

// A node fails every 125 s, however many there are.
TEST(Goodput, IsWhatAJobOfFailingNodesMakes) {
  for (const std::size_t nodes : {16, 256, 1024}) {
    const double change = seconds_of_a_loss(nodes);
    NodeFailures failures{.mtbf_seconds = 125.0 * static_cast<double>(nodes),
                          .absence_seconds = 300,
                          .loss_seconds = change + 2,
                          .join_seconds = change};
    failures.min_nodes = static_cast<int>(nodes / 2);
    std::vector<double> speed;
    for (std::size_t n = 1; n <= nodes; ++n)
      speed.push_back(10.0 * static_cast<double>(n) / static_cast<double>(nodes));
    const double seen = steps_of_failing_nodes(speed, failures, 2e6);
    EXPECT_NEAR(seen, steps_with_failures(speed, failures), 0.01 * seen) << nodes << " nodes";
  }
}

}  // namespace
}  // namespace tandem::simulation
