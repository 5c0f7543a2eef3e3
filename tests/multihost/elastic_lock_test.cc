// Elastic jobs on two hosts with a lock in etcd: the lock, not the number of nodes, decides which
// side continues, and a joining node finds the others there.
#include "multihost/elastic_hosts.h"

namespace tandem::testing {
namespace {

class ElasticLock : public ElasticHosts {
 protected:
  void SetUp() override {
    if (find_program("etcd").empty()) GTEST_SKIP() << "needs etcd (package etcd-server)";
    ElasticHosts::SetUp();
    if (!IsSkipped()) start_etcd();
  }
  // On node1, with the agent that came second.
  void start_etcd() {
    etcd_ = std::make_unique<Process>(
        host(1).inside({find_program("etcd"), "--data-dir", path("etcd").native(),
                        "--listen-client-urls", "http://0.0.0.0:2379", "--advertise-client-urls",
                        "http://node1:2379", "--listen-peer-urls", "http://127.0.0.1:2380"}));
  }
  static Nodes nodes() { return {.conf = ",etcd=http://node1:2379,etcd_lease=2"}; }

  std::unique_ptr<Process> etcd_;
};

// The first node, which would continue without a lock, waits; the one that reaches etcd continues.
TEST_F(ElasticLock, TheSideThatReachesEtcdContinues) {
  begin(nodes());
  ASSERT_TRUE(both_compute(1));
  const std::size_t before = joins(1);
  cut();
  ASSERT_TRUE(printed(*agents_[1], "without the node at"));
  hold(1);
  ASSERT_TRUE(printed(*agents_[0], "waiting for the external lock"));
  EXPECT_EQ(times(0, "without the node at"), 0u);
  mend();
  ASSERT_TRUE(printed(*agents_[0], "etcd answers again"));
  release(1);
  ASSERT_TRUE(sees_another_join(1, before));
  end(0);
  end(1);
  expect_bits_of_calm_job(kSteps);
}

// No host computes for longer than the lease; only time is lost.
TEST_F(ElasticLock, WithoutEtcdTheJobWaits) {
  begin(nodes());
  ASSERT_TRUE(both_compute(0));
  host(1).shell("pkill -KILL -x etcd");
  etcd_->wait();
  hold(1);  // or the job may be over before the lease is
  ASSERT_TRUE(printed(*agents_[0], "etcd does not answer"));
  ASSERT_TRUE(printed(*agents_[0], "waiting for the external lock"));
  release(1);
  start_etcd();
  end(0);
  end(1);
  expect_bits_of_calm_job(kSteps);
}

// The endpoint's host is gone for good.
TEST_F(ElasticLock, ANewNodeFindsTheOthersWithoutTheEndpoint) {
  begin(nodes());
  ASSERT_TRUE(both_compute(1));
  lose(0);
  ASSERT_TRUE(printed(*agents_[1], "without the node at"));
  hold(1);
  const std::size_t before = joins(1);
  const auto another = agent(1, nodes());
  ASSERT_TRUE(printed(*another, "1 worker"));
  release(1);
  ASSERT_TRUE(sees_another_join(1, before));
  end(1);
  const ProcessResult result = another->wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_bits_of_calm_job(kSteps);
}

}  // namespace
}  // namespace tandem::testing
