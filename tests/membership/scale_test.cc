// Large jobs: what a change of the view costs, how long a learner takes, and what is left of the
// speed of a job whose nodes fail.
#include "membership/scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/membership/goodput.h"

namespace tandem::simulation {
namespace {

using membership::NodeFailures;
using membership::steps_with_failures;

// Three rounds whatever the size; a few messages per node.
TEST(Scale, AViewChangeTakesThreeRounds) {
  for (const std::size_t nodes : {16, 256, 1024}) {
    const ViewChange first = rendezvous(nodes, {});
    const ViewChange loss = lose_one(nodes, {});
    EXPECT_EQ(first.rounds, 3);
    EXPECT_EQ(loss.rounds, 3);
    EXPECT_EQ(loss.messages, 5 * (nodes - 2));
    EXPECT_LE(first.messages, 8 * nodes);
    std::cout << nodes << " nodes: rendezvous " << first.messages << " messages, " << first.bytes
              << " bytes, " << 1e3 * first.seconds << " ms; loss " << loss.messages << " messages, "
              << loss.bytes << " bytes, " << 1e3 * loss.seconds << " ms\n";
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

// Nodes that fail at random, event by event, with the view changes that the simulator measures: the
// steps per second that are left.
double steps_of_failing_nodes(const std::vector<double>& speed, const NodeFailures& failures,
                              double end) {
  std::mt19937_64 random(18);
  const auto after = [&](double mean) {
    return mean * -std::log1p(-std::uniform_real_distribution<>()(random));
  };
  std::vector<bool> there(speed.size(), true);
  std::vector<double> next;
  for (std::size_t i = 0; i < speed.size(); ++i) next.push_back(after(failures.mtbf_seconds));
  double now = 0, steps = 0, paused = 0;
  std::size_t members = speed.size();
  while (now < end) {
    const auto who =
        static_cast<std::size_t>(std::min_element(next.begin(), next.end()) - next.begin());
    const bool runs = members >= static_cast<std::size_t>(failures.min_nodes);
    const double time = next[who] - now;
    const double pause = std::min(paused, time);
    paused -= pause;
    if (runs) steps += (time - pause) * speed[members - 1];
    now = next[who];
    there[who] = !there[who];
    members += there[who] ? 1 : -1;
    paused += there[who] ? failures.join_seconds : failures.loss_seconds;
    next[who] = now + after(there[who] ? failures.mtbf_seconds : failures.absence_seconds);
  }
  return steps / now;
}

// A node fails every 125 s, however many there are.
TEST(Goodput, IsWhatAJobOfFailingNodesMakes) {
  for (const std::size_t nodes : {16, 256, 4096}) {
    const double change = lose_one(nodes, {}).seconds;
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
