// Operation × type × reduction × size × in and out of place × root × placement, against sums made here one after another.
// Placement: everybody on one node in private memory, in memory of the communicator, and on several nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "tandem/comm/test_ranks.h"

namespace tandem::comm {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using testing::run_processes;
using testing::run_threads;

constexpr std::size_t kSizes[] = {0, 1, 17, 4095, 4096, 32771, 262144};

// Numbers whose sums are exact, and whose products stay small, in every type, in any order: a few ones and twos.
template <class T>
T number(double x) {
  if constexpr (std::is_same_v<T, bfloat16>) return to_bfloat16(static_cast<float>(x));
  if constexpr (std::is_same_v<T, float16>) return to_float16(static_cast<float>(x));
  if constexpr (std::is_same_v<T, std::byte>) return static_cast<std::byte>(x);
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(x);
}

double raw_value(int rank, std::size_t i) {
  return static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 5) % 13) / 1.0;
}

template <class T>
T value_of(int rank, std::size_t i, ReduceOp op) {
  const double x = raw_value(rank, i);
  return number<T>(op == ReduceOp::kProduct ? (x > 9 ? 2.0 : 1.0) : x);
}

// What the reduction of `size` ranks gives for element i: exact in f64, then the type's own rounding (none needed here but
// for averages).
template <class T>
T expected_value(int size, std::size_t i, ReduceOp op) {
  double result = op == ReduceOp::kProduct ? 1.0 : op == ReduceOp::kMin ? 1e9 : 0.0;
  for (int r = 0; r < size; ++r) {
    const double x = op == ReduceOp::kProduct ? (raw_value(r, i) > 9 ? 2.0 : 1.0) : raw_value(r, i);
    if (op == ReduceOp::kProduct) result *= x;
    if (op == ReduceOp::kMin) result = std::min(result, x);
    if (op == ReduceOp::kMax) result = std::max(result, x);
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) result += x;
  }
  if (op != ReduceOp::kAverage) return number<T>(result);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<long>(result) / size);
  if constexpr (std::is_same_v<T, double>) return result / size;
  return number<T>(static_cast<double>(static_cast<float>(result) / static_cast<float>(size)));
}

// Buffers of one rank: from the heap, or from the communicator.
template <class T>
class Buffers {
 public:
  Buffers(Communicator& comm, bool shared, std::size_t count) {
    if (shared) {
      memory_ = comm.mem_alloc(2 * (count * sizeof(T) + 64));
      in = memory_.as<T>().first(count);
      const std::size_t offset = (count * sizeof(T) + 63) / 64 * 64 / sizeof(T);
      out = memory_.as<T>().subspan(offset, count);
    } else {
      heap_.resize(2 * count);
      in = std::span(heap_).first(count);
      out = std::span(heap_).last(count);
    }
  }
  std::span<T> in, out;

 private:
  CommunicatorMemory memory_;
  std::vector<T> heap_;
};

template <class T>
void require_equal(std::span<const T> found, const std::function<T(std::size_t)>& expected,
                   const std::string& what) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::memcmp(&found[i], std::array{expected(i)}.data(), sizeof(T)) != 0)
      throw std::runtime_error(fmt::format("{}: element {} of {}", what, i, found.size()));
  }
}

template <class T>
void check_reductions(Communicator& comm, bool shared, std::size_t count, ReduceOp op) {
  const int size = comm.size();
  const auto ranks = static_cast<std::size_t>(size);
  const int root = static_cast<int>((count + static_cast<std::size_t>(op)) % ranks);
  const std::string what =
      fmt::format("{} of {} {}", name_of(op), count, name_of(DataTypeOf<T>::kValue));
  const auto fill = [&](std::span<T> data) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = value_of<T>(comm.rank(), i, op);
  };
  const std::function<T(std::size_t)> whole = [&](std::size_t i) {
    return expected_value<T>(size, i, op);
  };
  const std::function<T(std::size_t)> block = [&](std::size_t i) {
    return expected_value<T>(size, static_cast<std::size_t>(comm.rank()) * count + i, op);
  };
  {
    Buffers<T> buffers(comm, shared, count);
    fill(buffers.in);
    comm.all_reduce(std::span<const T>(buffers.in), buffers.out, op);
    require_equal<T>(buffers.out, whole, "all_reduce " + what);
    std::fill(buffers.out.begin(), buffers.out.end(), T{});
    comm.reduce(std::span<const T>(buffers.in), buffers.out, op, root);
    if (comm.rank() == root) require_equal<T>(buffers.out, whole, "reduce " + what);
    comm.all_reduce(buffers.in, op);
    require_equal<T>(buffers.in, whole, "all_reduce in place " + what);
  }
  if (count * ranks > 300000) return;
  Buffers<T> buffers(comm, shared, count * ranks);
  fill(buffers.in);
  comm.reduce_scatter(std::span<const T>(buffers.in), buffers.out.first(count), op);
  require_equal<T>(buffers.out.first(count), block, "reduce_scatter " + what);
  const auto own = buffers.in.subspan(static_cast<std::size_t>(comm.rank()) * count, count);
  comm.reduce_scatter(std::span<const T>(buffers.in), own, op);
  require_equal<T>(own, block, "reduce_scatter in place " + what);
}

template <class T>
void check_moves(Communicator& comm, bool shared, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  if (count * ranks > 600000) return;
  const int root = static_cast<int>(count % ranks);
  const auto own_block = [&](std::span<T> all) {
    return all.subspan(static_cast<std::size_t>(comm.rank()) * count, count);
  };
  const std::string what = fmt::format(" of {} {}", count, name_of(DataTypeOf<T>::kValue));
  const auto value = [](int rank, std::size_t i) { return number<T>(raw_value(rank, i)); };
  const std::function<T(std::size_t)> gathered = [&](std::size_t i) {
    return value(static_cast<int>(i / count), i % count);
  };
  Buffers<T> buffers(comm, shared, count * ranks);
  const std::span<T> in = buffers.in;
  const std::span<T> out = buffers.out;
  const auto fill_block = [&](std::span<T> block) {
    for (std::size_t i = 0; i < block.size(); ++i) block[i] = value(comm.rank(), i);
  };
  const auto clear = [&] { std::fill(out.begin(), out.end(), T{}); };

  fill_block(in.first(count));
  comm.broadcast(in.first(count), root);
  require_equal<T>(
      in.first(count), [&](std::size_t i) { return value(root, i); }, "broadcast" + what);

  fill_block(in.first(count));
  clear();
  comm.all_gather(std::span<const T>(in.first(count)), out);
  require_equal<T>(out, gathered, "all_gather" + what);
  clear();
  comm.barrier();  // in shared memory the others may still read
  fill_block(own_block(out));
  comm.all_gather(std::span<const T>(own_block(out)), out);
  require_equal<T>(out, gathered, "all_gather in place" + what);

  clear();
  comm.gather(std::span<const T>(in.first(count)), comm.rank() == root ? out : std::span<T>(),
              root);
  if (comm.rank() == root) require_equal<T>(out, gathered, "gather" + what);

  // Block b of rank r: the values of rank r·size + b.
  for (std::size_t b = 0; b < ranks; ++b) {
    for (std::size_t i = 0; i < count; ++i)
      in[b * count + i] = value(comm.rank() * comm.size() + static_cast<int>(b), i);
  }
  comm.scatter(std::span<const T>(in), out.first(count), root);
  require_equal<T>(
      out.first(count), [&](std::size_t i) { return value(root * comm.size() + comm.rank(), i); },
      "scatter" + what);
  comm.all_to_all(std::span<const T>(in), out);
  require_equal<T>(
      out,
      [&](std::size_t i) {
        return value(static_cast<int>(i / count) * comm.size() + comm.rank(), i % count);
      },
      "all_to_all" + what);
  comm.barrier();
}

template <class T>
void check_type(Communicator& comm, bool shared) {
  for (const std::size_t count : kSizes) {
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      // All operations at the sizes of every way; the largest with one of them.
      if (count > 5000 && op != ReduceOp::kSum && sizeof(T) != 4) continue;
      check_reductions<T>(comm, shared, count, op);
    }
    check_moves<T>(comm, shared, count);
  }
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
                          }),
              Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Product, ::testing::Values(1, 2, 3, 4, 5, 7, 8));

// How ranks are dealt to nodes: whole subtrees, parts of subtrees, nodes of different sizes, every rank alone.
struct Placement {
  const char* name;
  std::vector<int> node_of;
};

class Nodes : public ::testing::TestWithParam<Placement> {};

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
                  },
                  options),
              Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(All, Nodes,
                         ::testing::Values(Placement{"OneEach", {0, 1, 2}},
                                           Placement{"Blocks", {0, 0, 1, 1}},
                                           Placement{"Alternating", {0, 1, 0, 1}},
                                           Placement{"Uneven", {0, 0, 0, 1, 1}},
                                           Placement{"ThreeByTwo", {0, 0, 1, 1, 2, 2}}),
                         [](const auto& one) { return std::string(one.param.name); });

// The bits of sums do not depend on where the ranks run, nor on the way the numbers took.
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
    // The first is right, too: the tree of six, in f32, one rounding.
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
