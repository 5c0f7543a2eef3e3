// Elastic jobs on two hosts between which nothing passes for a while.
#include "multihost/elastic_hosts.h"
#include "multihost/slow_cable.h"

namespace tandem::testing {
namespace {

// Agents that reach each other again have found each other by then.
constexpr std::chrono::seconds kShrinkAgreement{3};

class ElasticCuts : public ElasticHosts {};

// The host that was there first continues; it may be either of the two. The other one logs what it
// waits for, and joins again.
TEST_F(ElasticCuts, OneSideContinuesAndTheOtherJoinsAgain) {
  begin({});
  ASSERT_TRUE(both_compute(0));
  const std::size_t joined[] = {joins(0), joins(1)};
  cut();
  const int first = node_that_logs("without the node at");
  ASSERT_GE(first, 0);
  const int other = 1 - first;
  hold(first);
  ASSERT_TRUE(printed(*agents_[other], "waiting for more than half of the 2 nodes"));
  EXPECT_EQ(times(other, "without the node at"), 0u);
  mend();
  std::this_thread::sleep_for(kShrinkAgreement);
  release(first);
  ASSERT_TRUE(sees_another_join(first, joined[first]));
  end(0);
  end(1);
  expect_bits_of_calm_job(kSteps);
}

// By default, the view survives a network interruption of 1.8 s, wherever between two messages of
// the agents it begins.
TEST_F(ElasticCuts, AnInterruptionOfNearlyTwoSecondsIsNoLoss) {
  if (const std::string reason = SlowCable::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  host(0).shell("ip link del wire");
  SlowCable cable({host(0), "wire", "10.77.0.10/24"}, {host(1), "wire", "10.77.0.11/24"}, 1e9);
  constexpr int kLong = 2 * kSteps;
  begin({.steps = kLong});
  ASSERT_TRUE(both_compute(0, kLong));
  const std::size_t views = times(0, "workers continue after");
  for (const int between : {200, 700}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(between));
    ASSERT_TRUE(agents_[0]->running()) << output_of(*agents_[0]);
    cable.lose(SlowCable::Loses::kEverything);
    std::this_thread::sleep_for(std::chrono::milliseconds(1800));
    cable.lose(SlowCable::Loses::kNothing);
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));
  }
  end(0);
  end(1);
  EXPECT_EQ(times(0, "workers continue after"), views)
      << output_of(*agents_[0]) << output_of(*agents_[1]);
  expect_bits_of_calm_job(kLong);
}

}  // namespace
}  // namespace tandem::testing
