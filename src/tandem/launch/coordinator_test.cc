// Rounds, restarts and ends, in a world of events without sockets and clocks.
#include "tandem/launch/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class SimulatedJob {
 public:
  explicit SimulatedJob(JobRules rules) : coordinator_(std::move(rules), now_) {}

  int arrive(int workers = 1, int node_rank = -1, const std::string& role = "default") {
    AgentInfo info;
    info.host = "host";
    info.workers = workers;
    info.node_rank = node_rank;
    info.role = role;
    const int agent = coordinator_.arrive(info, now_);
    coordinator_.ready(agent, now_);
    take();
    return agent;
  }
  void ready(int agent) {
    coordinator_.ready(agent, now_);
    take();
  }
  void fail(int agent, int rank, Ending ending, bool final = false, bool victim = false) {
    Failure failure;
    failure.rank = rank;
    failure.ending = ending;
    failure.victim = victim;
    coordinator_.failed(agent, {failure}, final, now_);
    take();
  }
  void succeed(int agent) {
    coordinator_.succeeded(agent, now_);
    take();
  }
  void lose(int agent) {
    orders.erase(agent);
    coordinator_.gone(agent, "its connection ended", now_);
    take();
  }
  void pass(seconds time) {
    now_ += time;
    coordinator_.tick(now_);
    take();
  }
  // The newest order to an agent.
  const Order& last(int agent) { return orders[agent].back(); }
  bool started(int agent) {
    return !orders[agent].empty() && last(agent).kind == Order::Kind::kStart;
  }
  bool received(int agent, Order::Kind kind) {
    return !orders[agent].empty() && last(agent).kind == kind;
  }

  std::map<int, std::vector<Order>> orders;

 private:
  void take() {
    for (auto& [agent, order] : coordinator_.take_orders()) orders[agent].push_back(order);
  }
  Coordinator::Clock::time_point now_{};
  Coordinator coordinator_;
};

JobRules rules(int min_nodes, int max_nodes, int max_restarts = 0) {
  JobRules rules;
  rules.min_nodes = min_nodes;
  rules.max_nodes = max_nodes;
  rules.max_restarts = max_restarts;
  return rules;
}

TEST(Coordinator, BeginsAtOnceWhenAllAreThere) {
  SimulatedJob job(rules(2, 2));
  const int a = job.arrive(2, -1, "x");
  EXPECT_FALSE(job.started(a));
  const int b = job.arrive(3, -1, "y");
  ASSERT_TRUE(job.started(a) && job.started(b));
  const RankAssignment assignment = job.last(b).assignment;
  EXPECT_EQ(assignment.group_rank, 1);
  EXPECT_EQ(assignment.first_rank, 2);
  EXPECT_EQ(assignment.world_size, 5);
  EXPECT_EQ(assignment.first_role_rank, 0);
  EXPECT_EQ(assignment.role_world_size, 3);
}

TEST(Coordinator, WaitsForMoreNodesOnlyWhileTheyCome) {
  SimulatedJob job(rules(1, 4));
  const int a = job.arrive();
  job.pass(seconds(1));
  job.arrive();
  job.pass(seconds(1));
  EXPECT_FALSE(job.started(a));
  job.pass(seconds(1));
  ASSERT_TRUE(job.started(a));
  EXPECT_EQ(job.last(a).assignment.group_size, 2);
}

TEST(Coordinator, FixedPlacesAreTheNodeRanks) {
  JobRules fixed = rules(2, 2);
  fixed.fixed_places = true;
  SimulatedJob job(fixed);
  const int one = job.arrive(1, 1);
  EXPECT_THROW(job.arrive(1, 1), ConfigError);
  EXPECT_THROW(job.arrive(1, 2), ConfigError);
  const int zero = job.arrive(1, 0);
  EXPECT_EQ(job.last(zero).assignment.group_rank, 0);
  EXPECT_EQ(job.last(one).assignment.group_rank, 1);
}

TEST(Coordinator, AFailureRestartsAllAndIsCountedOnce) {
  SimulatedJob job(rules(2, 2, 1));
  const int a = job.arrive();
  const int b = job.arrive();
  job.fail(b, 1, {.code = 3, .signal = 0});
  job.pass(seconds(1));
  EXPECT_THAT(job.last(a).text, HasSubstr("restart 1 of 1"));
  EXPECT_TRUE(job.received(b, Order::Kind::kStop));
  job.ready(b);
  EXPECT_FALSE(job.started(b)) << "the other one still stops its workers";
  job.ready(a);
  ASSERT_TRUE(job.started(a) && job.started(b));
  EXPECT_EQ(job.last(a).assignment.restart_count, 1);
  job.fail(a, 0, {.code = 4, .signal = 0});
  job.pass(seconds(1));
  ASSERT_TRUE(job.received(b, Order::Kind::kEnd));
  EXPECT_EQ(job.last(b).exit_code, 1);
  EXPECT_EQ(job.last(b).failures.front().ending.code, 4);
}

TEST(Coordinator, TheCauseIsNamedNotTheVictim) {
  JobRules own = rules(2, 2);
  own.own_job = true;
  SimulatedJob job(own);
  const int a = job.arrive();
  const int b = job.arrive();
  job.fail(a, 0, {.code = 200, .signal = 0}, false, true);
  EXPECT_FALSE(job.received(a, Order::Kind::kEnd)) << "the cause may still be on its way";
  job.fail(b, 1, {.code = 0, .signal = SIGKILL});
  ASSERT_TRUE(job.received(a, Order::Kind::kEnd));
  EXPECT_EQ(job.last(a).exit_code, 137);
  EXPECT_EQ(root_failure(job.last(a).failures).rank, 1);
}

TEST(Coordinator, WhatNoRestartHelpsEndsTheJob) {
  SimulatedJob job(rules(1, 1, 9));
  const int a = job.arrive();
  job.fail(a, 0, {.code = 2, .signal = 0}, true);
  EXPECT_TRUE(job.received(a, Order::Kind::kEnd));
}

TEST(Coordinator, NewcomersRestartAllWhenThereIsRoomAndCostNothing) {
  SimulatedJob job(rules(1, 2));
  const int a = job.arrive();
  job.pass(seconds(3));
  ASSERT_TRUE(job.started(a));
  const int b = job.arrive();
  EXPECT_TRUE(job.started(a)) << "perhaps more come";
  job.pass(seconds(3));
  EXPECT_TRUE(job.received(a, Order::Kind::kStop));
  job.ready(a);
  ASSERT_TRUE(job.started(a) && job.started(b));
  EXPECT_EQ(job.last(a).assignment.restart_count, 0);
  EXPECT_EQ(job.last(a).assignment.group_rank, 0);
  const int c = job.arrive();
  EXPECT_TRUE(job.received(c, Order::Kind::kNote)) << "full";
  job.lose(b);
  EXPECT_TRUE(job.received(a, Order::Kind::kStop));
  job.ready(a);
  EXPECT_TRUE(job.started(c));
}

TEST(Coordinator, ALostNodeIsMissedAtOnce) {
  SimulatedJob elastic(rules(1, 2));
  const int a = elastic.arrive();
  const int b = elastic.arrive();
  elastic.lose(b);
  EXPECT_THAT(elastic.last(a).text, HasSubstr("its connection ended"));
  elastic.ready(a);
  elastic.pass(seconds(3));
  ASSERT_TRUE(elastic.started(a));
  EXPECT_EQ(elastic.last(a).assignment.group_size, 1);

  SimulatedJob fixed(rules(2, 2));
  const int c = fixed.arrive();
  fixed.lose(fixed.arrive());
  ASSERT_TRUE(fixed.received(c, Order::Kind::kEnd));
  EXPECT_THAT(fixed.last(c).text, HasSubstr("needs all 2 nodes"));
}

TEST(Coordinator, EndsWhenAllHaveSucceededOrTooFewCome) {
  SimulatedJob job(rules(2, 2));
  const int a = job.arrive();
  const int b = job.arrive();
  job.succeed(a);
  EXPECT_TRUE(job.started(a));
  job.succeed(b);
  ASSERT_TRUE(job.received(a, Order::Kind::kEnd));
  EXPECT_EQ(job.last(a).exit_code, 0);

  SimulatedJob lonely(rules(2, 2));
  const int c = lonely.arrive();
  lonely.pass(seconds(601));
  ASSERT_TRUE(lonely.received(c, Order::Kind::kEnd));
  EXPECT_THAT(lonely.last(c).text, HasSubstr("1 of at least 2 nodes came within 600 s"));
}

TEST(Failures, AreReadFromErrorFilesAndRanked) {
  EXPECT_TRUE(is_victim({.code = 200, .signal = 0}, "", true));
  EXPECT_FALSE(is_victim({.code = 1, .signal = 0}, "ValueError: x", false));
  EXPECT_TRUE(
      is_victim({.code = 1, .signal = 0}, "RuntimeError: Connection closed by peer", false));
  Failure victim;
  victim.victim = true;
  Failure cause;
  cause.rank = 5;
  cause.message = "ValueError: x\nmore";
  const auto lines = failure_report({victim, cause});
  EXPECT_THAT(lines.front(), HasSubstr("failed because of that"));
  EXPECT_THAT(lines.back(), ::testing::StartsWith("root failure: rank 5"));
  EXPECT_THAT(lines.back(), HasSubstr("ValueError: x more"));
}

}  // namespace
}  // namespace tandem::launch
