// Every rule is broken once, and the simulator must find it: an invariant that nothing can violate
// proves nothing.
#include <gtest/gtest.h>

#include "membership/simulation.h"

namespace tandem::simulation {
namespace {

using namespace membership;

// The first violation among the schedules of some seeds; empty without one.
std::string find_violation(const Rules& rules, const Breaks& breaks, Schedule schedule,
                           std::uint64_t seeds) {
  for (schedule.seed = 1; schedule.seed <= seeds; ++schedule.seed) {
    const Outcome outcome = run(schedule, rules, breaks);
    if (!outcome.violation.empty()) return outcome.violation;
  }
  return {};
}

bool found(const std::string& violation, const std::string& invariant) {
  return violation.find(invariant) != std::string::npos;
}

// No node dies, and there are many rival proposals.
Schedule rivals() {
  Schedule schedule;
  schedule.deaths = false;
  schedule.lock = false;
  schedule.poison = false;
  schedule.alarms = true;
  schedule.nodes = 5;
  return schedule;
}

TEST(BrokenRules, APromiseThatIsTakenBack) {
  struct : Rules {
    bool may_promise(ViewNumber, ViewNumber) const override { return true; }
  } rules;
  EXPECT_PRED2(found, find_violation(rules, {}, rivals(), 3000), "one view per number");
}

TEST(BrokenRules, TwoHalvesContinue) {
  struct : Rules {
    bool may_follow(const View&, const std::set<NodeId>&, const std::set<NodeId>&) const override {
      return true;
    }
  } rules;
  Schedule schedule;
  schedule.deaths = false;
  EXPECT_PRED2(found, find_violation(rules, {}, schedule, 3000), "follow the same one");
}

TEST(BrokenRules, AnAcceptedViewIsForgotten) {
  struct : Rules {
    bool may_be_installed(const View&, const Answers&) const override { return false; }
  } rules;
  EXPECT_PRED2(found, find_violation(rules, {}, rivals(), 3000), "follow the same one");
}

TEST(BrokenRules, AViewIsInstalledThatNotAllHaveAccepted) {
  struct : Rules {
    bool may_install(const View&, const std::set<NodeId>&) const override { return true; }
  } rules;
  // The rarest: the proposer is cut off between its Install and the others.
  Schedule schedule = rivals();
  schedule.cuts = true;
  schedule.losses = false;
  schedule.min_nodes = 2;
  EXPECT_PRED2(found, find_violation(rules, {}, schedule, 3000), "follow the same one");
}

TEST(BrokenRules, R2TheLowestStepWins) {
  struct : Rules {
    std::uint64_t highest_step(const Answers& answers) const override {
      std::uint64_t lowest = answers.begin()->second.answer.node_state.step;
      for (const auto& [id, answered] : answers)
        lowest = std::min(lowest, answered.answer.node_state.step);
      return lowest;
    }
  } rules;
  EXPECT_PRED2(found, find_violation(rules, {}, {}, 3000), "nothing lost");
}

TEST(BrokenRules, FewerThanMinCompute) {
  struct : Rules {
    bool must_pause(std::size_t, const Bounds&) const override { return false; }
  } rules;
  EXPECT_PRED2(found, find_violation(rules, {}, {}, 3000), "min");
}

TEST(BrokenRules, R5ABugIsTakenForTheWeather) {
  struct : Rules {
    const Fault* repeated(std::span<const Fault>) const override { return nullptr; }
  } rules;
  EXPECT_PRED2(found, find_violation(rules, {}, {}, 300), "progress");
}

TEST(BrokenRules, R6OtherFilesAreWelcome) {
  struct : Rules {
    std::string refusal(const JobIdentity&, const Credentials&) const override { return {}; }
  } rules;
  EXPECT_NE(find_violation(rules, {}, {}, 3000), "");
}

TEST(BrokenRules, R1PartsOfAnyViewAreSummed) {
  EXPECT_PRED2(found, find_violation(Rules(), {.sum_any_view = true}, {}, 3000), "fence");
}

TEST(BrokenRules, R3AnInterruptedUpdateIsDoneTwice) {
  EXPECT_PRED2(found, find_violation(Rules(), {.forget_undo = true}, {}, 3000), "bits");
}

TEST(BrokenRules, R4TheLogHasAnEntryPerNode) {
  EXPECT_PRED2(found, find_violation(Rules(), {.write_again = true}, {}, 3000), "log");
}

// Many workers die while a view brings them to its step.
std::string find_among_survivors(const Breaks& breaks) {
  Schedule schedule;
  schedule.deaths = false;
  schedule.partitions = false;
  return find_violation(Rules(), breaks, schedule, 3000);
}

TEST(BrokenRules, WhatANodeHadIsOverwrittenTooEarly) {
  EXPECT_PRED2(found, find_among_survivors({.replace_in_place = true}), "bits");
}

TEST(BrokenRules, AnInterruptedCopyLooksWhole) {
  EXPECT_PRED2(found, find_among_survivors({.keep_half_copies = true}), "bits");
}

TEST(BrokenRules, LearnersApplyAnyGradient) {
  EXPECT_PRED2(found, find_violation(Rules(), {.any_gradient = true}, {}, 3000), "learned");
}

}  // namespace
}  // namespace tandem::simulation
