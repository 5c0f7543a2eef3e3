// Elastic jobs on two hosts between which nothing passes for a while.
#include "multihost/elastic_hosts.h"

namespace tandem::testing {
namespace {

// Agents that reach each other again have found each other by then.
constexpr std::chrono::seconds kReunion{3};

class ElasticCuts : public ElasticHosts {};

// Of two hosts the one that was there first goes on. The other one says what it waits for, and
// joins again.
TEST_F(ElasticCuts, OneSideGoesOnAndTheOtherJoinsAgain) {
  begin({});
  ASSERT_TRUE(both_compute(0));
  const std::size_t before = joins(0);
  cut();
  ASSERT_TRUE(printed(*agents_[0], "without the node at"));
  hold(0);
  ASSERT_TRUE(printed(*agents_[1], "waiting for more than half of the 2 nodes"));
  EXPECT_EQ(times(1, "without the node at"), 0u);
  mend();
  std::this_thread::sleep_for(kReunion);
  release(0);
  ASSERT_TRUE(sees_another_join(0, before));
  end(0);
  end(1);
  expect_bits_of(*calm_job(kSteps));
}

}  // namespace
}  // namespace tandem::testing
