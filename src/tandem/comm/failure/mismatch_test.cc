// One rank makes another call than the others. For any two calls and any placement of the ranks,
// all ranks get an error with both calls. Between nodes there may be no message that shows the
// difference (both gather, but to different roots), or the messages of the two calls may be equal
// (all_reduce and reduce). Hashes of the calls in headers, op headers and heartbeats cover these
// cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/comm/collectives/test_ranks.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::run_threads;

struct Wrong {
  Operation operation = Operation::kAllReduce;
  std::size_t count = 3000;
  bool is_double = false;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
};

std::string describe(const Wrong& call) {
  return fmt::format("{} of {} {} ({}) root {}", name_of(call.operation), call.count,
                     call.is_double ? "float64" : "float32", name_of(call.op), call.root);
}

template <class T>
void make(Communicator& comm, const Wrong& call) {
  const std::size_t all = call.count * static_cast<std::size_t>(comm.size());
  const bool root = comm.rank() == call.root;
  std::vector<T> one(call.count);
  std::vector<T> blocks(all);
  const std::span<const T> given(one);
  const std::span<const T> given_blocks(blocks);
  std::vector<T> result(all);
  const std::span<T> taken = std::span(result).first(call.count);
  switch (call.operation) {
    case Operation::kBarrier:
      return comm.barrier();
    case Operation::kAllReduce:
      return comm.all_reduce(given, taken, call.op);
    case Operation::kReduce:
      return comm.reduce(given, root ? taken : std::span<T>(), call.op, call.root);
    case Operation::kReduceScatter:
      return comm.reduce_scatter(given_blocks, taken, call.op);
    case Operation::kBroadcast:
      return comm.broadcast(std::span(one), call.root);
    case Operation::kAllGather:
      return comm.all_gather(given, std::span(result));
    case Operation::kGather:
      return comm.gather(given, root ? std::span(result) : std::span<T>(), call.root);
    case Operation::kScatter:
      return comm.scatter(root ? given_blocks : std::span<const T>(), taken, call.root);
    case Operation::kAllToAll:
      return comm.all_to_all(given_blocks, std::span(result));
    case Operation::kSend:
      break;
  }
}

void make(Communicator& comm, const Wrong& call) {
  call.is_double ? make<double>(comm, call) : make<float>(comm, call);
}

// Every operation against every other one, and against itself with another count, type, reduction
// or root.
std::vector<std::pair<Wrong, Wrong>> all_pairs() {
  constexpr Operation kOperations[] = {
      Operation::kBarrier,       Operation::kAllReduce, Operation::kReduce,
      Operation::kReduceScatter, Operation::kBroadcast, Operation::kAllGather,
      Operation::kGather,        Operation::kScatter,   Operation::kAllToAll};
  std::vector<std::pair<Wrong, Wrong>> pairs;
  for (const Operation one : kOperations) {
    const Wrong right{one};
    const auto add = [&](auto change) {
      Wrong wrong = right;
      change(wrong);
      pairs.emplace_back(right, wrong);
    };
    for (const Operation other : kOperations) {
      if (other != one) add([&](Wrong& wrong) { wrong.operation = other; });
    }
    if (one == Operation::kBarrier) continue;
    add([](Wrong& wrong) { wrong.count = 3001; });
    add([](Wrong& wrong) { wrong.is_double = true; });
    const bool reduces = one == Operation::kAllReduce || one == Operation::kReduce ||
                         one == Operation::kReduceScatter;
    if (reduces) add([](Wrong& wrong) { wrong.op = ReduceOp::kMax; });
    if (has_root(one)) add([](Wrong& wrong) { wrong.root = 1; });
  }
  return pairs;
}

struct Placement {
  const char* name;
  int ranks;
  int ranks_per_node;
};

void PrintTo(const Placement& one, std::ostream* out) { *out << one.name; }

class Mismatch : public ::testing::TestWithParam<Placement> {};

TEST_P(Mismatch, OfAnyTwoCallsIsReportedByAllRanks) {
  const Placement& placement = GetParam();
  const auto options = [&](int rank) {
    Options result = testing::test_options(rank);
    result.node_id = std::to_string(rank / placement.ranks_per_node);
    result.timeout = milliseconds(20000);
    return result;
  };
  double longest = 0;
  // Over a plugin every failed world keeps its endpoints, and their memory, until the process ends.
  const std::size_t step = testing::test_transport().is_plugin() ? 40 : 1;
  const auto pairs = all_pairs();
  for (std::size_t i = 0; i < pairs.size(); i += step) {
    const Wrong& right = pairs[i].first;
    const Wrong& wrong = pairs[i].second;
    const std::string what = describe(right) + " against " + describe(wrong);
    const auto start = std::chrono::steady_clock::now();
    const auto errors = run_threads(
        placement.ranks,
        [&](Communicator& comm) {
          make(comm, comm.rank() == placement.ranks - 1 ? wrong : right);
          comm.barrier();
          comm.barrier();
        },
        options);
    longest = std::max(
        longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("disagree")) << what;
  }
  RecordProperty("longest_s", fmt::format("{:.2f}", longest));
}

INSTANTIATE_TEST_SUITE_P(All, Mismatch,
                         ::testing::Values(Placement{"OneNode", 2, 2}, Placement{"TwoNodes", 2, 1},
                                           Placement{"TwoNodesOfTwo", 4, 2},
                                           Placement{"ThreeNodes", 3, 1}),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Ranks that made different calls earlier, without a message between them, agree on no later call.
TEST(Mismatch, OfAnEarlierCallIsReportedWithTheNextOne) {
  const auto errors = run_threads(
      2,
      [](Communicator& comm) {
        comm.barrier();
        // Each rank acts as the root, sends its data, and continues.
        std::vector<float> data(10);
        comm.broadcast(std::span(data), comm.rank());
        comm.barrier();
      },
      [](int rank) {
        Options result = testing::test_options(rank);
        result.node_id = std::to_string(rank);
        return result;
      });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("disagree"));
}

// The same sequence numbers in two communicators, one after the other under one channel, are not
// compared with each other.
TEST(Mismatch, IsNotSeenWhereCommunicatorsDiffer) {
  const auto errors = run_threads(
      4,
      [](Communicator& comm) {
        for (int round = 0; round < 3; ++round) {
          const auto part = comm.split(comm.rank() % 2, 0);
          std::vector<float> data(100, 1.0f);
          for (int i = 0; i < 5; ++i) {
            if (round == 1) part->broadcast(std::span(data), i % 2);
            part->all_reduce(std::span(data),
                             comm.rank() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMax);
          }
          // Rank 0 is late: for some heartbeats the others report the operation they wait in.
          if (comm.rank() == 0) std::this_thread::sleep_for(milliseconds(600));
          part->barrier();
          part->close();
          comm.barrier();
        }
      },
      [](int rank) {
        Options result = testing::test_options(rank);
        result.node_id = std::to_string(rank / 2);
        return result;
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace tandem::comm
