// Elastic jobs on two hosts: workers and hosts die, leave and come back, and the bits are those of
// an undisturbed job.
#include "multihost/elastic_hosts.h"

#include <algorithm>
#include <csignal>
#include <regex>

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// Rank 0's host and the other one: workers are started again and map what their node holds.
TEST_F(ElasticHosts, WorkersDieOnBoth) {
  let_faults_kill();
  begin({.count = "2"});
  ASSERT_TRUE(both_compute(1));
  signal_worker(0, "KILL");
  ASSERT_TRUE(printed(*agents_[1], "is applied"));
  signal_worker(1, "SEGV");
  EXPECT_THAT(end(0).err, HasSubstr("was killed by SIGKILL"));
  EXPECT_THAT(end(1).err, HasSubstr("was killed by SIGSEGV"));
  expect_bits_of_calm_job(kSteps);
}

// Agent and worker of a host are killed at once, the endpoint's too. A host that rejoins gets the
// state from the survivors. It may have an older CPU: the bits are the same.
class LostHost : public ElasticHosts, public ::testing::WithParamInterface<int> {};

TEST_P(LostHost, DoesNotDisturbTheOthersAndComesBack) {
  const int lost = GetParam();
  const int left = 1 - lost;
  begin({});
  ASSERT_TRUE(both_compute(left));
  const std::size_t before = joins(left);
  lose(lost);
  ASSERT_TRUE(printed(*agents_[left], "without the node at"));
  hold(left);
  begin_again(lost, {.variables = {{"TANDEM_CPU_FEATURES", "avx2"}}});
  prepared(lost);
  release(left);
  ASSERT_TRUE(sees_another_join(left, before));
  end(left);
  end(lost);
  expect_bits_of_calm_job(kSteps);
}

INSTANTIATE_TEST_SUITE_P(Node, LostHost, ::testing::Values(0, 1));

// Nothing of a job is there yet when an agent is lost.
TEST_F(ElasticHosts, AHostIsLostBeforeTheFirstView) {
  begin({.count = "2"});
  ASSERT_TRUE(printed(*agents_[1], "1 worker"));
  lose(1);
  begin_again(1, {.count = "2"});
  end(0);
  end(1);
  expect_bits_of_calm_job(kSteps);
}

class DrainedHost : public ElasticHosts, public ::testing::WithParamInterface<int> {};

// SIGTERM to an agent, the endpoint's too: its node leaves after a step, and may come back.
TEST_P(DrainedHost, LeavesAfterAStepAndComesBack) {
  const int drained = GetParam();
  const int left = 1 - drained;
  begin({});
  ASSERT_TRUE(both_compute(left));
  const std::size_t before = joins(left);
  signal_agent(drained, "TERM");
  EXPECT_THAT(end(drained, 128 + SIGTERM).err, HasSubstr("leaves the job after a step"));
  ASSERT_TRUE(printed(*agents_[left], "without the node at"));
  hold(left);
  agents_[drained] = agent(drained, {});
  prepared(drained);
  release(left);
  ASSERT_TRUE(sees_another_join(left, before));
  end(0);
  end(1);
  expect_bits_of_calm_job(kSteps);
}

INSTANTIATE_TEST_SUITE_P(Node, DrainedHost, ::testing::Values(0, 1));

// The view of two nodes as each agent describes it.
std::vector<std::string> views_in(const std::string& status) {
  static const std::regex view("view ([0-9]+) of 2 ranks on 2 nodes: 1 of 1 workers here compute");
  std::vector<std::string> numbers;
  for (std::sregex_iterator match(status.begin(), status.end(), view), end; match != end; ++match)
    numbers.push_back((*match)[1]);
  return numbers;
}

// Any agent answers for the whole job: on its own host for its user, and from anywhere with the
// job's token.
TEST_F(ElasticHosts, AnyAgentReportsAndControlsTheOthers) {
  begin({});
  ASSERT_TRUE(both_compute(0));
  const auto tandem = [&](int node, const std::string& words) {
    return host(node).shell(fmt::format("{} {} 2>&1 || true", kProgram, words));
  };
  const std::string at = " --at node0:29400";
  EXPECT_THAT(tandem(1, "status" + at), HasSubstr("--at needs the job's secret"));
  const std::string asked = "TANDEM_JOB_TOKEN=another " + std::string(kProgram) + " status" + at;
  EXPECT_THAT(host(1).shell(asked + " 2>&1 || true"), HasSubstr("another TANDEM_JOB_TOKEN"));
  write_file(path("token"), "of this test\n");
  const auto with_token = [&](int node, const std::string& words) {
    return host(node).shell(fmt::format("TANDEM_JOB_TOKEN_FILE={} {} {} 2>&1 || true",
                                        path("token").native(), kProgram, words));
  };
  for (const std::string& status : {tandem(0, "status"), with_token(1, "status" + at)}) {
    EXPECT_THAT(status, HasSubstr("on node0 (node0:29400): view "));
    EXPECT_THAT(status, HasSubstr("on node1 (10.77.0.11:"));
    EXPECT_THAT(status.substr(status.find("on node1")), HasSubstr("  worker 0 "));
    EXPECT_THAT(views_in(status), AllOf(SizeIs(2), Each(Eq(views_in(status).front())))) << status;
  }
  EXPECT_THAT(tandem(0, "drain nowhere"), HasSubstr("the job has no agent on 'nowhere'; it has:"));
  EXPECT_THAT(tandem(0, "drain node1/7"), HasSubstr("there is no worker 7"));
  EXPECT_THAT(tandem(0, "resize node1/1"), HasSubstr("1 of 1 workers take part"));
  EXPECT_THAT(with_token(1, "drain node1" + at),
              HasSubstr("node1 leaves after a step; 1 of 2 hosts continue"));
  EXPECT_THAT(end(1).err, HasSubstr("drained: this node leaves the job after a step"));
  EXPECT_THAT(tandem(0, "drain node0"), HasSubstr("no other host computes"));
  end(0);
  expect_bits_of_calm_job(kSteps);
}

// Fewer than MIN: a checkpoint, and the remaining node waits with its process as it is.
TEST_F(ElasticHosts, BelowMinTheJobIsSavedAndWaits) {
  begin({.count = "2"});
  ASSERT_TRUE(both_compute(0));
  const std::size_t before = joins(0);
  lose(1);
  ASSERT_TRUE(printed(*agents_[0], "1 of at least 2 nodes are left"));
  begin_again(1, {.count = "2"});
  ASSERT_TRUE(sees_another_join(0, before));
  EXPECT_THAT(end(0).err, Not(HasSubstr("started again")));
  end(1);
  const auto is_checkpoint = [](const auto& entry) {
    return entry.path().filename().native().starts_with("checkpoint-");
  };
  const std::filesystem::directory_iterator saved(path("job")), end_of_saved;
  EXPECT_EQ(std::count_if(saved, end_of_saved, is_checkpoint), 1);
  expect_bits_of_calm_job(kSteps);
}

// A waiting process reports the cause of its wait, and ends.
TEST_F(ElasticHosts, NoHostWaitsForever) {
  const Nodes nodes{.count = "2", .conf = ",join_timeout=4"};
  agents_[1] = agent(1, nodes);
  EXPECT_THAT(end(1, 200).err, HasSubstr("no agent answered at node0:29400 within 4 s"));
  agents_[0] = agent(0, nodes);
  EXPECT_THAT(end(0, 1).err, HasSubstr("2 nodes to begin; 1 are here"));
}

// A host without a network logs that, and what to do.
TEST_F(ElasticHosts, ALonelyHostIsReported) {
  cut();
  agents_[1] = agent(1, {.count = "2", .conf = ",join_timeout=1"});
  EXPECT_THAT(end(1, 200).err, HasSubstr("no network interface but loopback"));
}

// A host with different settings is refused with the reason, and the job continues.
TEST_F(ElasticHosts, AHostWithAnotherComputationIsRefused) {
  agents_[0] = agent(0, {});
  ASSERT_TRUE(printed(*agents_[0], fmt::format("/{} [", kSteps)));
  hold(0);
  agents_[1] = agent(1, {.flags = {"--learning_rate", "0.5"}});
  const std::string differs = ":\n  learning_rate: 0.001 on the job's hosts, 0.5 on node1\n";
  EXPECT_THAT(end(1, 1).err,
              AllOf(HasSubstr("refused by the job: node1 would"), HasSubstr(differs)));
  EXPECT_TRUE(printed(*agents_[0], "node1 was refused: node1 would"));
  EXPECT_THAT(output_of(*agents_[0]), HasSubstr(differs));
  agents_[1] = agent(1, {.variables = {{"TANDEM_KERNELS", "layer_norm=reference"}}});
  EXPECT_THAT(end(1, 1).err, AllOf(HasSubstr("other instructions round differently"),
                                   HasSubstr(":\n  layer_norm: "), Not(HasSubstr("gemm"))));
  release(0);
  end(0);
  expect_bits_of_calm_job(kSteps);
}

// A host that waits for a refused one logs that, and why, until it gives up.
TEST_F(ElasticHosts, AJobThatCannotBeginNamesTheRefusedHosts) {
  agents_[0] = agent(0, {.count = "2", .conf = ",join_timeout=20"});
  agents_[1] = agent(1, {.count = "2", .flags = {"--seed", "7"}});
  EXPECT_THAT(end(1, 1).err, HasSubstr("seed: 42 on the job's hosts, 7 on node1"));
  EXPECT_THAT(end(0, 1).err, AllOf(HasSubstr("for 2 nodes to begin; 1 are here; node1 was refused"),
                                   HasSubstr("seed: 42 on the job's hosts, 7 on node1")));
}

}  // namespace
}  // namespace tandem::testing
