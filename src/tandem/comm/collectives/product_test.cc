// Operation × type × reduction × size × in and out of place × root × placement, against sums
// computed here sequentially. NodeSizes: all ranks on one node in private memory, in memory of the
// communicator, and on several nodes.
//
// Left out, because it would multiply the time and the algorithm of a size does not depend on it:
// beyond 17 elements (f32: except for 4,096) one root per case, which differs from case to case. At
// 262,144 elements reductions other than sums in reduce_scatter, and elsewhere for types that are
// not four bytes wide. On several nodes and in memory of the communicator the largest size for five
// of the nine types. Algorithms by name, and more than eight ranks: algorithms_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/comm/collectives/product_checks.h"
#include "tandem/comm/memory.h"

namespace tandem::comm {
namespace {

using testing::Buffers;
using testing::check_moves;
using testing::check_reduce_scatter;
using testing::check_reductions;
using ::testing::Each;
using ::testing::IsEmpty;
using testing::kReductions;
using testing::run_processes;
using testing::run_threads;

constexpr std::size_t kProductSizes[] = {0, 1, 17, 4095, 4096, 32771, 262144};
constexpr std::size_t kLargest = 262144;

template <class T>
void check_size(Communicator& comm, bool shared, std::size_t count) {
  for (const ReduceOp op : kReductions) {
    const bool whole = count < kLargest || op == ReduceOp::kSum;
    if (whole || sizeof(T) == 4) check_reductions<T>(comm, shared, count, op);
    if (whole) check_reduce_scatter<T>(comm, shared, count, op);
  }
  check_moves<T>(comm, shared, count);
}

template <class T>
void check_type(Communicator& comm, bool shared) {
  for (const std::size_t count : kProductSizes) check_size<T>(comm, shared, count);
}

void check_all_types(Communicator& comm, bool shared) {
  check_type<float>(comm, shared);
  check_type<bfloat16>(comm, shared);
  check_type<float16>(comm, shared);
  check_type<double>(comm, shared);
  check_type<std::int8_t>(comm, shared);
  check_type<std::uint8_t>(comm, shared);
  check_type<std::int32_t>(comm, shared);
  check_type<std::int64_t>(comm, shared);
  check_type<std::uint64_t>(comm, shared);
  check_moves<std::byte>(comm, shared, 4097);
}

// The types for which check_type() is too slow in every test.
void check_other_types(Communicator& comm, bool shared) {
  for (const std::size_t count : {17ul, 32771ul}) {
    check_size<float16>(comm, shared, count);
    check_size<double>(comm, shared, count);
    check_size<std::int8_t>(comm, shared, count);
    check_size<std::uint8_t>(comm, shared, count);
    check_size<std::uint64_t>(comm, shared, count);
  }
}

class Product : public ::testing::TestWithParam<int> {};

TEST_P(Product, PrivateMemory) {
  EXPECT_THAT(run_threads(GetParam(), [](Communicator& comm) { check_all_types(comm, false); }),
              Each(IsEmpty()));
}

TEST_P(Product, CommunicatorMemory) {
  EXPECT_THAT(run_threads(GetParam(),
                          [](Communicator& comm) {
                            check_type<float>(comm, true);
                            check_type<bfloat16>(comm, true);
                            check_type<std::int64_t>(comm, true);
                            check_type<std::int32_t>(comm, true);
                            check_other_types(comm, true);
                          }),
              Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Product, ::testing::Values(1, 2, 3, 4, 5, 7, 8));

// Distributions of ranks over nodes: whole subtrees, parts of subtrees, nodes of different sizes,
// every rank alone.
struct NodeSizes {
  const char* name;
  std::vector<int> node_of;
};

void PrintTo(const NodeSizes& one, std::ostream* out) { *out << one.name; }

class Nodes : public ::testing::TestWithParam<NodeSizes> {};

TEST_P(Nodes, AllOperations) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.node_id = std::to_string(GetParam().node_of[static_cast<std::size_t>(rank)]);
    return result;
  };
  EXPECT_THAT(run_threads(
                  static_cast<int>(GetParam().node_of.size()),
                  [](Communicator& comm) {
                    check_type<float>(comm, false);
                    check_type<bfloat16>(comm, true);
                    check_type<std::int32_t>(comm, false);
                    // The transport does not depend on types.
                    if (testing::test_transport().is_plugin()) return;
                    check_type<std::int64_t>(comm, true);
                    check_other_types(comm, false);
                  },
                  options),
              Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(All, Nodes,
                         ::testing::Values(NodeSizes{"OneEach", {0, 1, 2}},
                                           NodeSizes{"Blocks", {0, 0, 1, 1}},
                                           NodeSizes{"Alternating", {0, 1, 0, 1}},
                                           NodeSizes{"Uneven", {0, 0, 0, 1, 1}},
                                           NodeSizes{"ThreeByTwo", {0, 0, 1, 1, 2, 2}}),
                         [](const auto& one) { return std::string(one.param.name); });

// The bits of sums depend neither on the placement of the ranks nor on the algorithm.
TEST(Bits, AreTheSameForAllPlacements) {
  const auto placements = std::vector<std::vector<int>>{{0, 0, 0, 0, 0, 0},
                                                        {0, 0, 1, 1, 2, 2},
                                                        {0, 0, 0, 1, 1, 1},
                                                        {0, 1, 0, 1, 0, 1},
                                                        {0, 1, 2, 3, 4, 5}};
  const auto rough = [](int rank, std::size_t i) {
    return (static_cast<float>((i * 31 + static_cast<std::size_t>(rank) * 17) % 1009) - 504.0f) /
           7.0f;
  };
  for (const std::size_t count : {1ul, 100ul, 5000ul, 100000ul}) {
    std::vector<std::vector<float>> results;
    std::vector<std::vector<bfloat16>> halves;
    for (const std::vector<int>& node_of : placements) {
      for (const bool shared : {false, true}) {
        results.emplace_back();
        halves.emplace_back();
        const auto options = [&](int rank) {
          Options one = testing::test_options(rank);
          one.node_id = std::to_string(node_of[static_cast<std::size_t>(rank)]);
          return one;
        };
        const auto errors = run_threads(
            6,
            [&](Communicator& comm) {
              Buffers<float> buffers(comm, shared, count);
              Buffers<bfloat16> narrow(comm, shared, count);
              for (std::size_t i = 0; i < count; ++i) {
                buffers.in[i] = rough(comm.rank(), i);
                narrow.in[i] = to_bfloat16(buffers.in[i]);
              }
              Buffers<float> blocks(comm, shared, 6 * count);
              for (std::size_t i = 0; i < 6 * count; ++i)
                blocks.in[i] = rough(comm.rank(), i % count);
              comm.reduce_scatter(std::span<const float>(blocks.in), blocks.out.first(count),
                                  ReduceOp::kAverage);
              comm.all_reduce(buffers.in, ReduceOp::kAverage);
              if (!std::equal(buffers.in.begin(), buffers.in.end(), blocks.out.begin()))
                throw std::runtime_error("reduce_scatter and all_reduce differ");
              Buffers<bfloat16> narrow_blocks(comm, shared, 6 * count);
              for (std::size_t i = 0; i < 6 * count; ++i)
                narrow_blocks.in[i] = narrow.in[i % count];
              comm.reduce_scatter(std::span<const bfloat16>(narrow_blocks.in),
                                  narrow_blocks.out.first(count), ReduceOp::kSum);
              comm.all_reduce(narrow.in, ReduceOp::kSum);
              if (!std::equal(narrow.in.begin(), narrow.in.end(), narrow_blocks.out.begin()))
                throw std::runtime_error("reduce_scatter and all_reduce differ in 16 bits");
              if (comm.rank() == 5) {
                results.back().assign(buffers.in.begin(), buffers.in.end());
                halves.back().assign(narrow.in.begin(), narrow.in.end());
              }
            },
            options);
        ASSERT_THAT(errors, Each(IsEmpty()));
        EXPECT_EQ(results.back(), results.front()) << count;
        EXPECT_EQ(halves.back(), halves.front()) << count;
      }
    }
    // The first is correct as well: the tree of six, in f32, one rounding.
    for (std::size_t i = 0; i < count; ++i) {
      const auto half = [&](int r) { return to_float(to_bfloat16(rough(r, i))); };
      const float sum = ((half(0) + half(1)) + (half(2) + half(3))) + (half(4) + half(5));
      ASSERT_EQ(halves.front()[i], to_bfloat16(sum)) << i;
      const float average = (((rough(0, i) + rough(1, i)) + (rough(2, i) + rough(3, i))) +
                             (rough(4, i) + rough(5, i))) /
                            6.0f;
      ASSERT_EQ(results.front()[i], average) << i;
    }
  }
}

TEST(Processes, ASubsetOfTheProduct) {
  for (const int ranks : {2, 3}) {
    for (const auto& ended : run_processes(ranks, [](Communicator& comm) {
           for (const bool shared : {false, true}) {
             check_type<float>(comm, shared);
             check_type<bfloat16>(comm, shared);
           }
         })) {
      EXPECT_TRUE(ended.exited_with(0)) << ended.output;
    }
  }
}

}  // namespace
}  // namespace tandem::comm
