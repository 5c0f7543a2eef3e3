// Algorithms between nodes that are requested by name, on real messages; more ranks than in
// product_test.cc; and operations that are started instead of called.
//
// Left out: all roots beyond 17 elements (f32: except for 4,096), as in product_test.cc. Algorithms
// other than the table's run only with sums, averages and maxima, since an algorithm does not
// depend on how two numbers are combined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/comm/collectives/product_checks.h"

namespace tandem::comm {
namespace {

using testing::check_moves;
using testing::check_reduce_scatter;
using testing::check_reductions;
using ::testing::Each;
using ::testing::IsEmpty;
using testing::kReductions;
using testing::Pattern;
using testing::reduced_values;
using testing::require_equal;
using testing::run_threads;
using testing::values_of;

// Rank r is on node r / ranks_per_node. The algorithm is requested as a job does it: in the
// environment.
testing::OptionsOf options_with(const std::string& algorithm, int ranks_per_node) {
  return [=](int rank) {
    Options options = testing::test_options(rank);
    options.node_id = std::to_string(rank / ranks_per_node);
    if (!algorithm.empty()) {
      options.selection = Selection::from_environment(Environment(
          std::map<std::string, std::string, std::less<>>{{"CCL_ALLREDUCE", algorithm},
                                                          {"CCL_REDUCE", algorithm},
                                                          {"CCL_REDUCE_SCATTER", algorithm}}));
    }
    return options;
  };
}

const char* const kAlgorithms[] = {"exchange", "tree", "recursive_doubling", "rabenseifner",
                                   "ring"};

// ---- by name ----

class ProductOfAlgorithms
    : public ::testing::TestWithParam<std::tuple<std::string, int /*nodes*/>> {};

template <class T>
void check_sums(Communicator& comm) {
  for (const std::size_t count : {1ul, 17ul, 4096ul, 32771ul}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
      check_reductions<T>(comm, /*shared=*/false, count, op);
      check_reduce_scatter<T>(comm, /*shared=*/false, count, op);
    }
  }
}

// One rank per node, and two on each but the last. With two, the nodes have rails, and
// reduce_scatter follows the name as well.
TEST_P(ProductOfAlgorithms, SumsAreExact) {
  const std::string algorithm = std::get<0>(GetParam());
  const int nodes = std::get<1>(GetParam());
  for (const int ranks_per_node : {1, 2}) {
    const int ranks = ranks_per_node == 1 ? nodes : 2 * nodes - 1;
    EXPECT_THAT(run_threads(
                    ranks,
                    [&](Communicator& comm) {
                      ASSERT_EQ(comm.nodes().size(), static_cast<std::size_t>(nodes));
                      check_sums<float>(comm);
                      check_sums<bfloat16>(comm);
                      check_sums<std::int32_t>(comm);
                    },
                    options_with(algorithm, ranks_per_node)),
                Each(IsEmpty()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ProductOfAlgorithms,
                         ::testing::Combine(::testing::ValuesIn(std::vector<std::string>(
                                                std::begin(kAlgorithms), std::end(kAlgorithms))),
                                            ::testing::Values(3, 4, 5)),
                         [](const auto& one) {
                           return fmt::format("{}_{}", std::get<0>(one.param),
                                              std::get<1>(one.param));
                         });

// Numbers that round. On four nodes every algorithm but the ring gives the bits of the canonical
// tree, as is_canonical() states. The ring gives other bits, so the requested algorithm ran and not
// the table's choice.
TEST(ProductOfAlgorithms, BitsAreAsDocumented) {
  constexpr std::size_t kCount = 5000;
  const auto rough = [](int rank, std::size_t i) {
    return (static_cast<float>((i * 31 + static_cast<std::size_t>(rank) * 17) % 1009) - 504.0f) /
           7.0f;
  };
  std::vector<float> canonical(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    canonical[i] = (rough(0, i) + rough(1, i)) + (rough(2, i) + rough(3, i));
  for (const char* algorithm : kAlgorithms) {
    std::vector<float> sums(kCount);
    const auto errors = run_threads(
        4,
        [&](Communicator& comm) {
          std::vector<float> data(kCount);
          for (std::size_t i = 0; i < kCount; ++i) data[i] = rough(comm.rank(), i);
          comm.all_reduce(std::span(data), ReduceOp::kSum);
          if (comm.rank() == 3) sums = data;
        },
        options_with(algorithm, 1));
    ASSERT_THAT(errors, Each(IsEmpty()));
    EXPECT_EQ(sums == canonical, std::string_view(algorithm) != "ring") << algorithm;
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(sums[i], canonical[i], 1e-4) << algorithm;
  }
}

// ---- many ranks ----

class ProductOfManyRanks
    : public ::testing::TestWithParam<std::tuple<int /*ranks*/, int /*ranks per node*/>> {};

// Algorithms for more than eight nodes. Three ranks per node are not subtrees, and the last node
// has fewer.
TEST_P(ProductOfManyRanks, AllOperations) {
  const int ranks = std::get<0>(GetParam());
  const int ranks_per_node = std::get<1>(GetParam());
  EXPECT_THAT(run_threads(
                  ranks,
                  [](Communicator& comm) {
                    for (const std::size_t count : {1ul, 100ul, 9001ul}) {
                      for (const ReduceOp op : kReductions) {
                        check_reductions<float>(comm, false, count, op);
                        check_reduce_scatter<float>(comm, false, count, op);
                      }
                      check_reductions<bfloat16>(comm, true, count, ReduceOp::kSum);
                      check_reduce_scatter<bfloat16>(comm, true, count, ReduceOp::kSum);
                      check_moves<std::int64_t>(comm, false, count);
                    }
                  },
                  options_with("", ranks_per_node)),
              Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(All, ProductOfManyRanks,
                         ::testing::Combine(::testing::Values(9, 16), ::testing::Values(1, 2, 3)),
                         [](const auto& one) {
                           return fmt::format("{}_by_{}", std::get<0>(one.param),
                                              std::get<1>(one.param));
                         });

// ---- started ----

template <class T>
std::byte* bytes_of(std::vector<T>& data) {
  return reinterpret_cast<std::byte*>(data.data());
}

// Every operation by start(Call), all in progress at once.
void start_every_operation(Communicator& comm, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const int root = comm.size() - 1;
  const bool at_root = comm.rank() == root;
  const std::size_t own = static_cast<std::size_t>(comm.rank()) * count;
  const auto whole = [&] {
    std::vector<float> data(count);
    testing::fill(std::span(data), values_of<float>(comm.rank()));
    return data;
  };
  std::vector<float> one = whole();
  std::vector<float> all(ranks * count);
  testing::fill(std::span(all), values_of<float>(comm.rank()));
  std::vector<float> sent = whole();
  std::vector<std::vector<float>> outs;
  std::vector<Request> requests;
  for (const Operation operation :
       {Operation::kAllReduce, Operation::kReduce, Operation::kReduceScatter, Operation::kAllGather,
        Operation::kGather, Operation::kScatter, Operation::kBroadcast, Operation::kAllToAll,
        Operation::kBarrier}) {
    Call call{operation, DataType::kFloat32, ReduceOp::kNone, 0, count};
    if (call.reduces()) call.op = ReduceOp::kSum;
    if (operation == Operation::kReduce || operation == Operation::kGather ||
        operation == Operation::kScatter || operation == Operation::kBroadcast)
      call.root = root;
    if (operation == Operation::kBarrier) call = Call{};
    std::vector<float>& out = outs.emplace_back(call.out_bytes(comm.size()) / sizeof(float));
    const bool blocks = call.in_bytes(comm.size()) > call.block_bytes();
    call.in = bytes_of(blocks ? all : one);
    call.out = bytes_of(out);
    if ((operation == Operation::kReduce || operation == Operation::kGather) && !at_root)
      call.out = nullptr;
    if (operation == Operation::kScatter && !at_root) call.in = nullptr;
    if (operation == Operation::kBroadcast) call.in = call.out = bytes_of(sent);
    if (operation == Operation::kBarrier) call.in = call.out = nullptr;
    requests.push_back(comm.start(call));
  }
  for (const Request& request : requests) comm.wait(request);
  const Pattern<float> sums = reduced_values<float>(comm.size(), ReduceOp::kSum);
  const auto check = [](std::span<const float> found, const Pattern<float>& pattern,
                        std::size_t first,
                        const char* what) { require_equal<float>(found, pattern, first, what); };
  const auto check_gathered = [&](const std::vector<float>& found, std::size_t first,
                                  const char* what) {
    for (std::size_t r = 0; r < ranks; ++r)
      check(std::span(found).subspan(r * count, count), values_of<float>(static_cast<int>(r)),
            first, what);
  };
  check(outs[0], sums, 0, "all_reduce");
  if (at_root) check(outs[1], sums, 0, "reduce");
  check(outs[2], sums, own, "reduce_scatter");
  check_gathered(outs[3], 0, "all_gather");
  if (at_root) check_gathered(outs[4], 0, "gather");
  check(outs[5], values_of<float>(root), own, "scatter");
  check(sent, values_of<float>(root), 0, "broadcast");
  check_gathered(outs[7], own, "all_to_all");
}

TEST(ProductOfStarted, EveryOperation) {
  for (const int ranks : {1, 2, 5}) {
    for (const int ranks_per_node : {1, 2, 5}) {
      EXPECT_THAT(run_threads(
                      ranks,
                      [](Communicator& comm) {
                        for (const std::size_t count : {0ul, 1ul, 4095ul, 50000ul})
                          start_every_operation(comm, count);
                      },
                      options_with("", ranks_per_node)),
                  Each(IsEmpty()));
    }
  }
}

// The same by the typed functions.
TEST(ProductOfStarted, WithTypes) {
  for (const int ranks_per_node : {1, 2, 4}) {
    const auto body = [](Communicator& comm) {
      constexpr std::size_t kCount = 20000;
      std::vector<bfloat16> sent(kCount);
      testing::fill(std::span(sent), values_of<bfloat16>(comm.rank()));
      std::vector<bfloat16> all(kCount * static_cast<std::size_t>(comm.size()));
      testing::fill(std::span(all), values_of<bfloat16>(comm.rank()));
      std::vector<bfloat16> sums(kCount);
      const Request scattered = comm.start_reduce_scatter(std::span<const bfloat16>(all),
                                                          std::span(sums), ReduceOp::kAverage);
      const Request broadcast = comm.start_broadcast(std::span(sent), 2);
      while (!broadcast.done()) comm.progress(std::chrono::microseconds(100));
      if (!scattered.done()) throw std::runtime_error("done before the operation in front of it");
      require_equal<bfloat16>(sums, reduced_values<bfloat16>(comm.size(), ReduceOp::kAverage),
                              static_cast<std::size_t>(comm.rank()) * kCount, "reduce_scatter");
      require_equal<bfloat16>(sent, values_of<bfloat16>(2), 0, "broadcast");
    };
    EXPECT_THAT(run_threads(4, body, options_with("", ranks_per_node)), Each(IsEmpty()));
  }
}

}  // namespace
}  // namespace tandem::comm
