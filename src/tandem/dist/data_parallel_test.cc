// The promise of DESIGN.md section 5: the same bits for any number of ranks, nodes and threads; and the node's one optimizer.
#include "tandem/dist/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <numeric>

#include "tandem/comm/test_ranks.h"
#include "tandem/core/error.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"

namespace tandem::dist {
namespace {

using comm::Communicator;
using comm::testing::run_processes;
using comm::testing::run_threads;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void require(bool condition, std::string_view what) {
  if (!condition) throw std::runtime_error(std::string(what));
}

// Values of very different sizes, so that another order of additions gives other bits.
float gradient_value(std::size_t shard, std::size_t i, int step) {
  std::uint64_t x = (shard + 1) * 0x9e3779b97f4a7c15ull ^ (i + 1) * 0xbf58476d1ce4e5b9ull ^
                    static_cast<std::uint64_t>(step + 1) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  const auto mantissa = static_cast<float>(static_cast<std::int32_t>(x >> 40)) / 16777216.0f + 0.5f;
  const float magnitude = std::ldexp(mantissa, static_cast<int>(x & 15) - 8);
  return (x & 16) != 0 ? magnitude : -magnitude;
}

// The definition: the tree over all shards, then times 1/L.
float expected_value(int begin, int end, std::size_t i, int step) {
  if (end - begin == 1) return gradient_value(static_cast<std::size_t>(begin), i, step);
  const int middle = begin + comm::left_leaves(end - begin);
  return expected_value(begin, middle, i, step) + expected_value(middle, end, i, step);
}

// Two whole buckets and a rest that is no multiple of anything.
// Threads and the best kernels of this CPU.
struct Machine {
  explicit Machine(int num_threads)
      : threads(num_threads),
        kernels(kernels::select_kernels(kernels::CpuFeatures::detect(), "")),
        scratch(num_threads),
        context{threads, kernels, scratch} {}
  mutable ThreadPool threads;
  kernels::KernelSet kernels;
  mutable kernels::Scratch scratch;
  kernels::Context context;
};

constexpr std::size_t kElements = 2 * 2 * DataParallel::kChunk + 70001;

DataParallelOptions test_options(int shards, std::size_t elements = kElements) {
  DataParallelOptions options;
  options.elements = elements;
  options.logical_shards = shards;
  options.bucket_elements = 2 * DataParallel::kChunk;
  options.bf16_weights = true;
  options.optimizer_state_elements = elements;
  return options;
}

// The shards' gradients, published in pieces that have nothing to do with buckets.
void run_backward(DataParallel& engine, int step) {
  for (std::size_t shard = engine.shards().begin; shard < engine.shards().end; ++shard) {
    const auto gradient = engine.gradient(shard);
    std::size_t end = 0;
    while (end < engine.elements()) {
      const std::size_t begin = end;
      end = std::min(engine.elements(), end + 50000 + 1000 * shard);
      for (std::size_t i = begin; i < end; ++i) gradient[i] = gradient_value(shard, i, step);
      engine.gradient_ready(shard, end);
    }
  }
}

// weights −= 0.125 · gradient in the owned ranges; the state remembers the gradient.
void update(DataParallel& engine) {
  const auto gradient = engine.reduced_gradient();
  for (const Range& range : engine.owned_ranges()) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      engine.weights()[i] -= 0.125f * gradient[i];
      engine.optimizer_state()[i] += gradient[i];
      engine.bf16_weights()[i] = to_bfloat16(engine.weights()[i]);
    }
  }
}

std::uint64_t hash_of(std::span<const float> values) {
  std::uint64_t hash = 1469598103934665603ull;
  for (const float value : values)
    hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211ull;
  return hash;
}

constexpr int kSteps = 3;

// Trains a few steps; returns a text that holds every bit that matters.
std::string train(Communicator* communicator, const DataParallelOptions& options,
                  int num_threads = 1) {
  const Machine machine(num_threads);
  DataParallel engine(communicator, machine.context, options);
  if (engine.node_leader()) {
    // Only rank 0's values may survive.
    const float first = communicator == nullptr || communicator->rank() == 0 ? 1.0f : -7.0f;
    for (std::size_t i = 0; i < engine.elements(); ++i)
      engine.weights()[i] = first / static_cast<float>(i + 1);
  }
  engine.broadcast_weights();
  std::string trace;
  for (int step = 0; step < kSteps; ++step) {
    run_backward(engine, step);
    engine.finish();
    std::vector<double> losses;
    for (std::size_t shard = engine.shards().begin; shard < engine.shards().end; ++shard) {
      losses.push_back(1.0 / static_cast<double>(shard + 3));
    }
    trace += fmt::format("{:016x} {:a} {:a}\n", hash_of(engine.reduced_gradient()),
                         engine.squared_norm(), engine.sum_over_shards(losses));
    update(engine);
    engine.publish();
  }
  trace +=
      fmt::format("{:016x} {:016x}", hash_of(engine.weights()), hash_of(engine.optimizer_state()));
  require(to_float(engine.bf16_weights()[kElements - 1]) ==
              to_float(to_bfloat16(engine.weights()[kElements - 1])),
          "bf16 copy");
  return trace;
}

TEST(DataParallel, TheMeanIsTheTreeOfTheHeader) {
  for (const int shards : {1, 2, 3, 4, 6, 7}) {
    const Machine machine(1);
    DataParallel engine(nullptr, machine.context, test_options(shards));
    run_backward(engine, 0);
    engine.finish();
    const float scale = 1.0f / static_cast<float>(shards);
    double norm = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const float sum = expected_value(0, shards, i, 0);
      const float expected = shards == 1 ? sum : sum * scale;
      ASSERT_EQ(engine.reduced_gradient()[i], expected) << shards << " shards, element " << i;
      norm += static_cast<double>(expected) * expected;
    }
    EXPECT_NEAR(engine.squared_norm(), norm, 1e-10 * norm);
  }
}

TEST(DataParallel, OneShardIsNotCopied) {
  const Machine machine(1);
  DataParallel engine(nullptr, machine.context, test_options(1));
  EXPECT_EQ(engine.reduced_gradient().data(), engine.gradient(0).data());
  EXPECT_EQ(engine.owned_ranges(), (std::vector<Range>{{0, kElements}}));
}

struct World {
  int ranks;
  int shards;
  const char* nodes;  // one letter per rank
};

void PrintTo(const World& world, std::ostream* out) {
  *out << world.ranks << " ranks, " << world.shards << " shards, nodes " << world.nodes;
}

comm::testing::OptionsOf options_of(const World& world) {
  return [nodes = std::string(world.nodes)](int rank) {
    comm::Options options;
    options.timeout = milliseconds(60000);
    options.node_id = nodes.substr(static_cast<std::size_t>(rank), 1);
    return options;
  };
}

class SameBits : public ::testing::TestWithParam<World> {};

TEST_P(SameBits, AsOneRankAlone) {
  const World world = GetParam();
  const std::string expected = train(nullptr, test_options(world.shards));
  const auto check = [&](Communicator& communicator) {
    const std::string found =
        train(&communicator, test_options(world.shards), 1 + communicator.rank() % 2);
    require(found == expected, fmt::format("found\n{}\nexpected\n{}", found, expected));
  };
  EXPECT_THAT(run_threads(world.ranks, check, options_of(world)), Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(
    DataParallel, SameBits,
    ::testing::Values(World{1, 4, "a"}, World{2, 2, "aa"}, World{2, 4, "aa"}, World{2, 6, "aa"},
                      World{3, 3, "aaa"}, World{3, 4, "aaa"}, World{3, 6, "aaa"},
                      World{4, 4, "aaaa"}, World{4, 6, "aaaa"},
                      // Two hosts: in blocks, in turn, uneven; three hosts.
                      World{2, 2, "ab"}, World{2, 4, "ab"}, World{2, 6, "ab"}, World{3, 4, "aab"},
                      World{3, 6, "abb"}, World{4, 4, "aabb"}, World{4, 4, "abab"},
                      World{4, 6, "aabb"}, World{4, 6, "abba"}, World{4, 6, "aaab"},
                      World{4, 4, "abca"}, World{5, 7, "aabbc"}),
    [](const auto& instance) {
      return fmt::format("{}Shards{}", instance.param.shards, instance.param.nodes);
    });

TEST(DataParallel, SameBitsAsProcesses) {
  for (const World& world : {World{2, 4, "aa"}, World{3, 4, "aaa"}, World{4, 6, "aabb"}}) {
    const std::string expected = train(nullptr, test_options(world.shards));
    const auto check = [&](Communicator& communicator) {
      require(train(&communicator, test_options(world.shards)) == expected, "other bits");
    };
    for (const auto& ended : run_processes(world.ranks, check, options_of(world))) {
      EXPECT_TRUE(ended.exited_with(0)) << ended.output;
    }
  }
}

TEST(DataParallel, SmallAndLargeLayoutsAndBuckets) {
  for (const std::size_t elements :
       {std::size_t{1}, std::size_t{17}, DataParallel::kChunk, 3 * DataParallel::kChunk}) {
    for (const std::size_t bucket :
         {std::size_t{1}, DataParallel::kChunk, 100 * DataParallel::kChunk}) {
      for (const char* nodes : {"aaa", "aab"}) {
        const auto errors = run_threads(
            3,
            [&](Communicator& communicator) {
              const Machine machine(1);
              DataParallelOptions options = test_options(3, elements);
              options.bucket_elements = bucket;
              DataParallel engine(&communicator, machine.context, options);
              for (int step = 0; step < 2; ++step) {
                run_backward(engine, step);
                engine.finish();
                for (std::size_t i = 0; i < elements; ++i) {
                  require(
                      engine.reduced_gradient()[i] == expected_value(0, 3, i, step) * (1.0f / 3.0f),
                      "element");
                }
                engine.publish();
              }
            },
            options_of({3, 3, nodes}));
        EXPECT_THAT(errors, Each(IsEmpty()));
      }
    }
  }
}

TEST(DataParallel, OwnedRangesTileTheLayoutOnEachNode) {
  const auto errors = run_threads(
      4,
      [](Communicator& communicator) {
        const Machine machine(1);
        DataParallel engine(&communicator, machine.context, test_options(4));
        std::vector<float> owners(kElements, 0.0f);
        for (const Range& range : engine.owned_ranges()) {
          require(range.begin % DataParallel::kChunk == 0, "begins at a chunk");
          require(range.end % DataParallel::kChunk == 0 || range.end == kElements,
                  "ends at a chunk");
          for (std::size_t i = range.begin; i < range.end; ++i) owners[i] += 1;
        }
        communicator.all_reduce(std::span(owners), comm::ReduceOp::kSum);
        const float nodes = 2;  // of equal size: each covers everything once
        require(std::all_of(owners.begin(), owners.end(), [&](float n) { return n == nodes; }),
                "tiles");
      },
      options_of({4, 4, "abab"}));
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// The first buckets are reduced while the last layers of backward still run: nothing is left for finish() but the end.
TEST(DataParallel, BucketsAreReducedBeforeTheLastOneIsReady) {
  const auto errors = run_threads(2, [](Communicator& communicator) {
    const Machine machine(1);
    DataParallel engine(&communicator, machine.context, test_options(2));
    const auto shard = engine.shards().begin;
    const auto gradient = engine.gradient(shard);
    for (std::size_t i = 0; i < kElements; ++i) gradient[i] = gradient_value(shard, i, 0);
    const std::size_t bucket = 2 * DataParallel::kChunk;
    engine.gradient_ready(shard, bucket);
    communicator.barrier();  // both have published bucket 0
    engine.gradient_ready(shard, bucket + 1);
    communicator.barrier();
    for (std::size_t i = 0; i < bucket; ++i) {
      require(engine.reduced_gradient()[i] == expected_value(0, 2, i, 0) * 0.5f, "reduced already");
    }
    communicator.barrier();
    engine.gradient_ready(shard, kElements);
    engine.finish();
    engine.publish();
    communicator.barrier();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(DataParallel, TooFewShardsAreRefused) {
  const auto errors = run_threads(2, [](Communicator& communicator) {
    const Machine machine(1);
    EXPECT_THROW(DataParallel(&communicator, machine.context, test_options(1)), InvalidArgument);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(DataParallel, ARankKilledInBackwardEndsTheOthersByName) {
  for (const char* nodes : {"aaa", "aab"}) {
    const auto ended = run_processes(
        3,
        [](Communicator& communicator) {
          const Machine machine(1);
          DataParallel engine(&communicator, machine.context, test_options(3));
          for (int step = 0;; ++step) {
            if (step == 2 && communicator.rank() == 1) ::raise(SIGKILL);
            run_backward(engine, step);
            engine.finish();
            update(engine);
            engine.publish();
          }
        },
        options_of({3, 3, nodes}));
    for (const int survivor : {0, 2}) {
      const auto& one = ended[static_cast<std::size_t>(survivor)];
      EXPECT_TRUE(one.exited_with(200)) << one.output;
      EXPECT_THAT(one.output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("died")));
      EXPECT_LT(one.seconds, 2.0);
    }
  }
}

TEST(DataParallel, AStalledRankIsNamedWithTheBucketItOwes) {
  const auto options = [](int rank) {
    comm::Options result = comm::testing::test_options(rank);
    result.timeout = milliseconds(300);
    return result;
  };
  const auto errors = run_threads(
      2,
      [](Communicator& communicator) {
        const Machine machine(1);
        DataParallel engine(&communicator, machine.context, test_options(2));
        if (communicator.rank() == 1) {
          while (!communicator.failed()) std::this_thread::sleep_for(milliseconds(5));
          communicator.throw_if_failed();
        }
        run_backward(engine, 0);
        engine.finish();
      },
      options);
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("waited 0.3 s for gradient bucket 1 of 3 of rank 1 (host ")));
  }
}

TEST(DataParallel, NothingStaysOpen) {
  const auto once = [] {
    const auto errors = run_threads(2, [](Communicator& communicator) {
      const Machine machine(1);
      DataParallel engine(&communicator, machine.context, test_options(2));
      run_backward(engine, 0);
      engine.finish();
      engine.publish();
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  };
  once();
  const std::size_t before = comm::testing::open_descriptors();
  for (int i = 0; i < 3; ++i) once();
  EXPECT_EQ(comm::testing::open_descriptors(), before);
}

}  // namespace
}  // namespace tandem::dist
