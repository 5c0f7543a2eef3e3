// Every message algorithm for all numbers of participants up to 64, run on arrays in memory without
// a network.
#include "tandem/comm/algorithms/schedule.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <numeric>

#include "tandem/comm/collectives/across_nodes.h"
#include "tandem/comm/network/schedule_task.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

// Executes the schedules of exchange() and the other algorithms: arrays per participant, one queue
// of messages per ordered pair.
template <class T>
class Simulation {
 public:
  Simulation(std::vector<Schedule> schedules, std::vector<std::vector<std::vector<T>>> own)
      : schedules_(std::move(schedules)), arrays_(std::move(own)) {
    for (std::size_t i = 0; i < schedules_.size(); ++i) {
      results_.push_back(schedules_.size() == 1 ? arrays_[i][0]
                                                : std::vector<T>(arrays_[i][0].size()));
      finished_.emplace_back(arrays_[i][0].size());
      for (const std::size_t elements : schedules_[i].scratch) arrays_[i].emplace_back(elements);
      next_.push_back(0);
      sent_.push_back(0);
    }
  }

  // Runs until no participant can move. Throws if a participant is stuck or a message is left.
  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t i = 0; i < schedules_.size(); ++i) moved = advance(i) || moved;
    }
    for (std::size_t i = 0; i < schedules_.size(); ++i) {
      if (next_[i] != schedules_[i].steps.size())
        throw std::runtime_error(fmt::format("participant {} is stuck", i));
    }
    for (const auto& [pair, queue] : wire_) {
      if (!queue.empty()) throw std::runtime_error("a message was not received");
    }
  }
  const std::vector<T>& array(std::size_t i) const { return arrays_[i][0]; }
  const std::vector<T>& result(std::size_t i) const { return results_[i]; }
  // Checks that every element of every result was finished or received once.
  bool complete() const {
    if (schedules_.size() == 1) return true;
    for (const auto& of_one : finished_) {
      if (std::count(of_one.begin(), of_one.end(), 1) != static_cast<long>(of_one.size()))
        return false;
    }
    return true;
  }
  // Elements sent by the busiest participant.
  std::size_t most_sent() const { return *std::max_element(sent_.begin(), sent_.end()); }

 private:
  bool advance(std::size_t me) {
    const std::vector<Step>& steps = schedules_[me].steps;
    if (next_[me] == steps.size()) return false;
    const int round = steps[next_[me]].round;
    std::size_t end = next_[me];
    while (end < steps.size() && steps[end].round == round) ++end;
    // A round's sends start before its receives arrive.
    if (sent_round_[me] != round + 1) {
      for (std::size_t s = next_[me]; s < end; ++s) {
        if (steps[s].kind == Step::Kind::kSend) send(me, steps[s]);
      }
      sent_round_[me] = round + 1;
    }
    std::map<int, std::size_t> wanted;
    for (std::size_t s = next_[me]; s < end; ++s) {
      if (steps[s].kind == Step::Kind::kReceive) ++wanted[steps[s].peer];
    }
    for (const auto& [peer, number] : wanted) {
      if (wire_[{peer, static_cast<int>(me)}].size() < number) return false;
    }
    for (std::size_t s = next_[me]; s < end; ++s) {
      if (steps[s].kind == Step::Kind::kReceive) receive(me, steps[s]);
    }
    for (std::size_t s = next_[me]; s < end; ++s) compute(me, steps[s]);
    next_[me] = end;
    return true;
  }
  void send(std::size_t me, const Step& step) {
    const std::vector<T>& from =
        step.final ? results_[me] : arrays_[me][static_cast<std::size_t>(step.array)];
    for (std::size_t i = step.begin; step.final && i < step.end; ++i) {
      if (finished_[me][i] == 0) throw std::runtime_error("sent before it was complete");
    }
    wire_[{static_cast<int>(me), step.peer}].emplace_back(
        from.begin() + static_cast<std::ptrdiff_t>(step.begin),
        from.begin() + static_cast<std::ptrdiff_t>(step.end));
    sent_[me] += step.end - step.begin;
  }
  void receive(std::size_t me, const Step& step) {
    auto& queue = wire_[{step.peer, static_cast<int>(me)}];
    const std::vector<T> message = queue.front();
    queue.pop_front();
    if (message.size() != step.end - step.begin)
      throw std::runtime_error(
          fmt::format("{} elements came, {} were expected", message.size(), step.end - step.begin));
    std::vector<T>& to =
        step.final ? results_[me] : arrays_[me][static_cast<std::size_t>(step.array)];
    std::copy(message.begin(), message.end(), to.begin() + static_cast<std::ptrdiff_t>(step.begin));
    for (std::size_t i = step.begin; step.final && i < step.end; ++i) ++finished_[me][i];
  }
  void compute(std::size_t me, const Step& step) {
    std::vector<T>& to = arrays_[me][static_cast<std::size_t>(step.array)];
    if (step.kind == Step::Kind::kAccumulate) {
      const std::vector<T>& from = arrays_[me][static_cast<std::size_t>(step.from)];
      for (std::size_t i = step.begin; i < step.end; ++i) to[i] = to[i] + from[i - step.begin];
    }
    for (std::size_t i = step.begin; step.kind == Step::Kind::kFinish && i < step.end; ++i) {
      results_[me][i] = to[i];
      ++finished_[me][i];
    }
    if (step.kind != Step::Kind::kTree) return;
    for (std::size_t i = step.begin; i < step.end; ++i) {
      std::vector<T> stack;
      for (const int entry : schedules_[me].program) {
        if (entry == kAdd) {
          const T right = stack.back();
          stack.pop_back();
          stack.back() = stack.back() + right;
          continue;
        }
        const auto& operand = schedules_[me].operands[static_cast<std::size_t>(entry)];
        stack.push_back(arrays_[me][static_cast<std::size_t>(operand.array)]
                               [operand.whole ? i : i - step.begin]);
      }
      to[i] = stack[0];
    }
  }

  std::vector<Schedule> schedules_;
  std::vector<std::vector<std::vector<T>>> arrays_;
  std::vector<std::vector<T>> results_;
  std::vector<std::vector<int>> finished_;
  std::vector<std::size_t> next_;
  std::map<std::size_t, int> sent_round_;
  std::vector<std::size_t> sent_;
  std::map<std::pair<int, int>, std::deque<std::vector<T>>> wire_;
};

float rough(int participant, std::size_t i) {
  return (static_cast<float>((i * 31 + static_cast<std::size_t>(participant) * 17) % 1009) -
          504.0f) /
         7.0f;
}

float tree_of(int begin, int end, std::size_t i) {
  if (end - begin == 1) return rough(begin, i);
  const int middle = begin + left_leaves(end - begin);
  return tree_of(begin, middle, i) + tree_of(middle, end, i);
}

constexpr Algorithm kScheduled[] = {Algorithm::kExchange, Algorithm::kTree, Algorithm::kDoubling,
                                    Algorithm::kHalving, Algorithm::kRing};

TEST(Schedule, AllReduceSumsForAllNumbersOfParticipants) {
  for (const Algorithm algorithm : kScheduled) {
    for (int participants = 1; participants <= 64; ++participants) {
      for (const std::size_t count : {0ul, 1ul, 7ul, 130ul}) {
        std::vector<Schedule> schedules;
        std::vector<std::vector<std::vector<long>>> own;
        for (int me = 0; me < participants; ++me) {
          schedules.push_back(schedule_all_reduce(algorithm, participants, me, count));
          std::vector<long> numbers(count);
          for (std::size_t i = 0; i < count; ++i) numbers[i] = (me + 1) * static_cast<long>(i + 3);
          own.push_back({numbers});
        }
        Simulation<long> simulation(std::move(schedules), std::move(own));
        ASSERT_NO_THROW(simulation.run()) << name_of(algorithm) << " " << participants;
        ASSERT_TRUE(simulation.complete()) << name_of(algorithm) << " " << participants;
        const long sum = participants * (participants + 1) / 2;
        for (int me = 0; me < participants; ++me) {
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(simulation.result(static_cast<std::size_t>(me))[i],
                      sum * static_cast<long>(i + 3))
                << name_of(algorithm) << " " << participants << " participant " << me;
          }
        }
      }
    }
  }
}

TEST(Schedule, WhatIsCalledCanonicalHasTheBitsOfTheTree) {
  constexpr std::size_t kCount = 50;
  int others = 0;
  for (const Algorithm algorithm : kScheduled) {
    for (int participants = 1; participants <= 64; ++participants) {
      std::vector<Schedule> schedules;
      std::vector<std::vector<std::vector<float>>> own;
      for (int me = 0; me < participants; ++me) {
        schedules.push_back(schedule_all_reduce(algorithm, participants, me, kCount));
        own.push_back({std::vector<float>(kCount)});
        for (std::size_t i = 0; i < kCount; ++i) own.back()[0][i] = rough(me, i);
      }
      Simulation<float> simulation(std::move(schedules), std::move(own));
      simulation.run();
      bool equal = true;
      for (int me = 0; me < participants; ++me) {
        for (std::size_t i = 0; i < kCount; ++i)
          equal = equal &&
                  simulation.result(static_cast<std::size_t>(me))[i] == tree_of(0, participants, i);
      }
      if (is_canonical(algorithm, participants)) {
        EXPECT_TRUE(equal) << name_of(algorithm) << " " << participants;
      } else {
        others += equal ? 0 : 1;
      }
    }
  }
  EXPECT_GT(others, 100);  // the numbers are rough enough to distinguish the orders
}

TEST(Schedule, ExchangeAddsPartialSumsAlongTheTree) {
  // Distributions of ranks over nodes that leave several subtrees to each node.
  for (int leaves = 2; leaves <= 64; ++leaves) {
    for (const int nodes : {2, 3, 5}) {
      if (leaves < nodes) continue;
      for (const bool alternating : {false, true}) {
        const auto node_of = [&](int leaf) {
          return alternating ? leaf % nodes : leaf * nodes / leaves;
        };
        const std::vector<Subtree> partials = owned_subtrees(leaves, node_of);
        const SumProgram tree = sum_program(0, leaves, partials);
        constexpr std::size_t kCount = 11;
        std::vector<Schedule> schedules;
        std::vector<std::vector<std::vector<float>>> own(static_cast<std::size_t>(nodes));
        for (int me = 0; me < nodes; ++me)
          schedules.push_back(schedule_exchange(nodes, me, kCount, partials, tree));
        for (const Subtree& partial : partials) {
          std::vector<float> sums(kCount);
          for (std::size_t i = 0; i < kCount; ++i) sums[i] = tree_of(partial.begin, partial.end, i);
          own[static_cast<std::size_t>(partial.owner)].push_back(sums);
        }
        Simulation<float> simulation(std::move(schedules), std::move(own));
        simulation.run();
        for (int me = 0; me < nodes; ++me) {
          for (std::size_t i = 0; i < kCount; ++i)
            ASSERT_EQ(simulation.result(static_cast<std::size_t>(me))[i], tree_of(0, leaves, i));
        }
      }
    }
  }
}

TEST(Schedule, BroadcastReachesAllFromEveryRoot) {
  for (int participants = 1; participants <= 64; ++participants) {
    for (int root = 0; root < participants; ++root) {
      std::vector<Schedule> schedules;
      std::vector<std::vector<std::vector<int>>> own;
      for (int me = 0; me < participants; ++me) {
        schedules.push_back(schedule_broadcast(participants, me, root, 3));
        own.push_back({std::vector<int>(3, me)});
      }
      Simulation<int> simulation(std::move(schedules), std::move(own));
      simulation.run();
      for (int me = 0; me < participants; ++me)
        ASSERT_EQ(simulation.array(static_cast<std::size_t>(me)), std::vector<int>(3, root));
    }
  }
}

// No participant leaves the barrier before all have entered it: the message of the last one arrives
// last.
TEST(Schedule, BarrierReceivesFromAllRanks) {
  for (int participants = 1; participants <= 64; ++participants) {
    std::vector<std::vector<bool>> notified(static_cast<std::size_t>(participants));
    std::vector<Schedule> schedules;
    int rounds = 0;
    for (int me = 0; me < participants; ++me) {
      notified[static_cast<std::size_t>(me)].resize(static_cast<std::size_t>(participants));
      notified[static_cast<std::size_t>(me)][static_cast<std::size_t>(me)] = true;
      schedules.push_back(schedule_barrier(participants, me));
      for (const Step& step : schedules.back().steps) rounds = std::max(rounds, step.round + 1);
    }
    for (int round = 0; round < rounds; ++round) {
      const auto before = notified;
      for (int me = 0; me < participants; ++me) {
        for (const Step& step : schedules[static_cast<std::size_t>(me)].steps) {
          if (step.round != round || step.kind != Step::Kind::kReceive) continue;
          for (std::size_t i = 0; i < before.size(); ++i) {
            if (before[static_cast<std::size_t>(step.peer)][i])
              notified[static_cast<std::size_t>(me)][i] = true;
          }
        }
      }
    }
    for (const auto& of_one : notified)
      ASSERT_EQ(std::count(of_one.begin(), of_one.end(), true), participants);
  }
}

// The numbers of sent elements in the table of schedule.h.
TEST(Schedule, VolumesAreAsStated) {
  constexpr std::size_t kCount = 6400;
  const auto most_sent = [](Algorithm algorithm, int participants) {
    std::vector<Schedule> schedules;
    std::vector<std::vector<std::vector<int>>> own;
    for (int me = 0; me < participants; ++me) {
      schedules.push_back(schedule_all_reduce(algorithm, participants, me, kCount));
      own.push_back({std::vector<int>(kCount, 1)});
    }
    Simulation<int> simulation(std::move(schedules), std::move(own));
    simulation.run();
    return simulation.most_sent();
  };
  for (const int participants : {2, 4, 8, 16, 32, 64}) {
    const std::size_t best = 2 * kCount * static_cast<std::size_t>(participants - 1) /
                             static_cast<std::size_t>(participants);
    EXPECT_EQ(most_sent(Algorithm::kExchange, participants), best);
    EXPECT_EQ(most_sent(Algorithm::kHalving, participants), best);
    EXPECT_EQ(most_sent(Algorithm::kRing, participants), best);
    EXPECT_EQ(
        most_sent(Algorithm::kDoubling, participants),
        kCount * static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(participants))));
  }
}

// Total bytes sent by a participant of an exchange, per element.
double bytes_per_element(DataType type, int ranks_per_node) {
  constexpr std::size_t kCount = 4096;
  const std::vector<Subtree> partials =
      owned_subtrees(2 * ranks_per_node, [&](int leaf) { return leaf / ranks_per_node; });
  const SumProgram tree = sum_program(0, 2 * ranks_per_node, partials);
  std::size_t sent = 0;
  for (const Step& step : schedule_exchange(2, 0, kCount, partials, tree).steps) {
    if (step.kind == Step::Kind::kSend)
      sent += (step.end - step.begin) * size_of(wire_type(step, accumulator_of(type), type));
  }
  return static_cast<double>(sent) / kCount;
}

// Two nodes send half of their sums and half of the result. Nodes of one rank send that rank's
// input, others partial sums.
TEST(Schedule, HalfFloatsTravelInTwoBytesWhereThatIsExact) {
  EXPECT_EQ(bytes_per_element(DataType::kFloat32, 1), 4);
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16}) {
    EXPECT_EQ(bytes_per_element(type, 1), 2);
    EXPECT_EQ(bytes_per_element(type, 2), 3);
  }
}

// The same in reduce_scatter, whose partial sums belong to whole nodes.
TEST(Schedule, WhatOneRankBroughtTravelsAsItCame) {
  EXPECT_EQ(wire_type({3, 4, 1}, DataType::kBfloat16), DataType::kBfloat16);
  EXPECT_EQ(wire_type({3, 4, 1}, DataType::kFloat16), DataType::kFloat16);
  EXPECT_EQ(wire_type({2, 4, 1}, DataType::kBfloat16), DataType::kFloat32);
  EXPECT_EQ(wire_type({2, 4, 1}, DataType::kInt8), DataType::kInt8);
}

}  // namespace
}  // namespace tandem::comm
