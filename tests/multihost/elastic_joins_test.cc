// Hosts that join an elastic job get its state while the others train, also if hosts are lost
// meanwhile. The bits are those of an undisturbed job.
#include <algorithm>

#include "multihost/elastic_hosts.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kLearns = "takes the job's state from the node at ";
const std::string kLevel = "this node joins";
const std::string kWrong = "was not the job's";

class ElasticJoins : public ElasticHosts {
 protected:
  // Node 0 trains alone, and stops for a while.
  void begin_alone(const Nodes& nodes) {
    agents_[0] = agent(0, nodes);
    ASSERT_TRUE(printed(*agents_[0], fmt::format("/{} [", nodes.steps)));
    hold(0);
  }
  // They come, and are about to be sent the state.
  void begin_to_learn(const std::vector<int>& nodes, const Nodes& how) {
    for (const int node : nodes) agents_[node] = agent(node, how);
    for (const int node : nodes) ASSERT_TRUE(printed(*agents_[node], kLearns));
  }
  void expect_learned(int node) {
    const std::string out = output_of(*agents_[node]);
    EXPECT_THAT(out, HasSubstr(kLevel));
    EXPECT_THAT(out, Not(HasSubstr("comes inside the first view")));
    EXPECT_THAT(out, Not(HasSubstr(kWrong)));
  }

  // Host 1 gets into the job, and both do the rest of it.
  void expect_the_learner_to_help() {
    release(0);
    ASSERT_TRUE(printed(*agents_[0], "with the node at"));
    end(0);
    end(1);
    expect_learned(1);
    expect_bits_of_calm_job(kSteps);
  }
};

TEST_F(ElasticJoins, AHostLearnsWhileTheOtherTrains) {
  begin_alone({});
  begin_to_learn({1}, {});
  expect_the_learner_to_help();
}

TEST_F(ElasticJoins, TwoHostsLearnAtOnce) {
  add_third_host();
  const Nodes nodes{.count = "1:3", .flags = {"--logical_shards", "4"}};
  begin_alone(nodes);
  begin_to_learn({1, 2}, nodes);
  release(0);
  ASSERT_TRUE(printed(*agents_[0], "3 of 3 workers continue"));
  for (const int node : {0, 1, 2}) end(node);
  for (const int node : {1, 2}) expect_learned(node);
  expect_bits_of_calm_job(kSteps, nodes.flags);
}

TEST_F(ElasticJoins, TheJoinerIsKilledWhileItLearns) {
  begin_alone({});
  begin_to_learn({1}, {});
  lose(1);
  agents_[1]->wait();
  begin_to_learn({1}, {});
  expect_the_learner_to_help();
}

// Two hosts train, and the sending one is killed. The learner asks the other one.
TEST_F(ElasticJoins, TheSourceIsKilledWhileItSends) {
  add_third_host();
  const Nodes nodes{.count = "1:3", .flags = {"--logical_shards", "4"}};
  begin(nodes);
  ASSERT_TRUE(printed(*agents_[0], "2 of 3 workers continue"));
  ASSERT_TRUE(printed(*agents_[1], "2 of 3 workers continue"));
  begun(0);
  for (const int node : {0, 1}) hold(node);
  begin_to_learn({2}, nodes);
  const bool is_first = times(2, kLearns + "node0") + times(2, kLearns + "10.77.0.10") > 0;
  const int source = is_first ? 0 : 1;
  lose(source);
  release(1 - source);
  ASSERT_TRUE(printed(*agents_[2], "another node is asked"));
  ASSERT_TRUE(printed(*agents_[1 - source], "with the node at 10.77.0.12"));
  end(1 - source);
  end(2);
  expect_learned(2);
  expect_bits_of_calm_job(kSteps, nodes.flags);
}

}  // namespace
}  // namespace tandem::testing
