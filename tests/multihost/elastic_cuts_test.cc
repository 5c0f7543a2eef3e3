// Elastic jobs on two hosts between which nothing passes for a while.
#include "multihost/elastic_hosts.h"

namespace tandem::testing {
namespace {

// Agents that reach each other again have found each other by then.
constexpr std::chrono::seconds kReunion{3};

class ElasticCuts : public ElasticHosts {};

// Of two hosts the one that was there first goes on, which may be either. The other one says what
// it waits for, and joins again.
TEST_F(ElasticCuts, OneSideGoesOnAndTheOtherJoinsAgain) {
  begin({});
  ASSERT_TRUE(both_compute(0));
  const std::size_t joined[] = {joins(0), joins(1)};
  cut();
  const int first = who_says("without the node at");
  ASSERT_GE(first, 0);
  const int other = 1 - first;
  hold(first);
  ASSERT_TRUE(printed(*agents_[other], "waiting for more than half of the 2 nodes"));
  EXPECT_EQ(times(other, "without the node at"), 0u);
  mend();
  std::this_thread::sleep_for(kReunion);
  release(first);
  ASSERT_TRUE(sees_another_join(first, joined[first]));
  end(0);
  end(1);
  expect_bits_of(*calm_job(kSteps));
}

}  // namespace
}  // namespace tandem::testing
