// The same bits for any number of ranks, nodes and threads (docs/numerics.md), and the node's one
// optimizer.
#include "tandem/dist/gradient_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <numeric>

#include "support/require.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/core/error.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"

namespace tandem::dist {
namespace {

using comm::Communicator;
using comm::testing::run_processes;
using comm::testing::run_threads;
using std::chrono::milliseconds;
using tandem::testing::require;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// The same with every node rounded to bf16.
float expected_rounded(int begin, int end, std::size_t i, int step) {
  const auto round = [](float x) { return to_float(to_bfloat16(x)); };
  if (end - begin == 1) return round(gradient_value(static_cast<std::size_t>(begin), i, step));
  const int middle = begin + comm::left_leaves(end - begin);
  return round(expected_rounded(begin, middle, i, step) + expected_rounded(middle, end, i, step));
}

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

// Two whole buckets and a rest that is not a multiple of anything.
constexpr std::size_t kElements = 2 * 2 * ModelState::kChunk + 70001;

struct Options {
  ModelStateOptions model;
  GradientEngineOptions engine;
};

Options test_options(int shards, std::size_t elements = kElements) {
  Options options;
  options.model.elements = elements;
  options.model.bf16_elements = elements / 2;  // ends inside a chunk
  options.model.optimizer_state_elements = elements;
  options.engine.logical_shards = shards;
  options.engine.bucket_elements = 2 * ModelState::kChunk;
  return options;
}

std::unique_ptr<Communicator> lone_rank() {
  return Communicator::create(rendezvous::Identity{}, {});
}

// An engine with its memory.
struct Memory {
  ModelState model;
};
struct Engine : Memory, GradientEngine {
  Engine(Communicator& communicator, const kernels::Context& context, const Options& options)
      : Memory{ModelState(communicator, options.model)},
        GradientEngine(communicator, context, model, options.engine) {}
  std::size_t elements() const { return model.elements(); }
  std::span<float> weights() const { return model.weights(); }
  std::span<bfloat16> bf16_weights() const { return model.bf16_weights(); }
  std::span<float> optimizer_state() const { return model.optimizer_state(); }
};

// The shards' gradients, published in pieces that have nothing to do with buckets.
void run_backward(Engine& engine, int step) {
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
void update(Engine& engine) {
  const auto gradient = engine.reduced_gradient();
  for (const Range& range : engine.owned_ranges()) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      engine.weights()[i] -= 0.125f * gradient[i];
      engine.optimizer_state()[i] += gradient[i];
      if (i < engine.bf16_weights().size())
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
std::string train(Communicator& communicator, const Options& options, int num_threads = 1) {
  const Machine machine(num_threads);
  Engine engine(communicator, machine.context, options);
  if (engine.node_leader()) {
    // Only rank 0's values may survive.
    const float first = communicator.rank() == 0 ? 1.0f : -7.0f;
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
    std::vector<double> of_all;
    engine.gather(losses, of_all);
    require(of_all.size() == static_cast<std::size_t>(engine.logical_shards()), "losses");
    std::vector<float> numbers(3 * static_cast<std::size_t>(engine.logical_shards()), -1.0f);
    for (std::size_t i = 3 * engine.shards().begin; i < 3 * engine.shards().end; ++i)
      numbers[i] = static_cast<float>(i) / 7;
    engine.gather(std::span(numbers));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      require(numbers[i] == static_cast<float>(i) / 7, "numbers of all shards");
    trace += fmt::format("{:016x} {:a} {:a}\n", hash_of(engine.reduced_gradient()),
                         engine.squared_norm(), sum_along_tree(of_all));
    update(engine);
    engine.publish();
  }
  trace +=
      fmt::format("{:016x} {:016x}", hash_of(engine.weights()), hash_of(engine.optimizer_state()));
  require(engine.bf16_weights().size() == options.model.bf16_elements, "size of the bf16 copy");
  require(to_float(engine.bf16_weights().back()) ==
              to_float(to_bfloat16(engine.weights()[options.model.bf16_elements - 1])),
          "bf16 copy");
  return trace;
}

TEST(GradientEngine, TheMeanIsTheTreeOfTheHeader) {
  for (const int shards : {1, 2, 3, 4, 6, 7}) {
    const Machine machine(1);
    const auto alone = lone_rank();
    Engine engine(*alone, machine.context, test_options(shards));
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

TEST(GradientEngine, Bf16GradientsRoundEveryNodeOfTheTreeOnce) {
  for (const int shards : {1, 2, 3, 4, 7}) {
    const Machine machine(2);
    Options options = test_options(shards);
    options.engine.bf16_gradients = true;
    const auto alone = lone_rank();
    Engine engine(*alone, machine.context, options);
    run_backward(engine, 0);
    engine.finish();
    const float scale = 1.0f / static_cast<float>(shards);
    std::size_t unlike_f32 = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const float expected = expected_rounded(0, shards, i, 0) * scale;
      ASSERT_EQ(engine.reduced_gradient()[i], expected) << shards << " shards, element " << i;
      if (expected != expected_value(0, shards, i, 0) * scale) ++unlike_f32;
    }
    EXPECT_GT(unlike_f32, kElements / 2);
  }
}

TEST(GradientEngine, OneShardIsNotCopied) {
  const Machine machine(1);
  const auto alone = lone_rank();
  Engine engine(*alone, machine.context, test_options(1));
  EXPECT_EQ(engine.reduced_gradient().data(), engine.gradient(0).data());
  EXPECT_EQ(engine.owned_ranges(), (std::vector<Range>{{0, kElements}}));
}

struct World {
  int ranks;
  int shards;
  const char* nodes;  // one letter per rank
  bool bf16 = false;  // gradients
};

void PrintTo(const World& world, std::ostream* out) {
  *out << world.ranks << " ranks, " << world.shards << " shards, nodes " << world.nodes
       << (world.bf16 ? ", bf16" : "");
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
  Options options = test_options(world.shards);
  options.engine.bf16_gradients = world.bf16;
  const std::string expected = train(*lone_rank(), options);
  const auto check = [&](Communicator& communicator) {
    const std::string found = train(communicator, options, 1 + communicator.rank() % 2);
    require(found == expected, fmt::format("found\n{}\nexpected\n{}", found, expected));
  };
  EXPECT_THAT(run_threads(world.ranks, check, options_of(world)), Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(
    GradientEngine, SameBits,
    ::testing::Values(World{1, 4, "a"}, World{2, 2, "aa"}, World{2, 4, "aa"}, World{2, 6, "aa"},
                      World{3, 3, "aaa"}, World{3, 4, "aaa"}, World{3, 6, "aaa"},
                      World{4, 4, "aaaa"}, World{4, 6, "aaaa"},
                      // Two hosts: in blocks, in turn, uneven; three hosts.
                      World{2, 2, "ab"}, World{2, 4, "ab"}, World{2, 6, "ab"}, World{3, 4, "aab"},
                      World{3, 6, "abb"}, World{4, 4, "aabb"}, World{4, 4, "abab"},
                      World{4, 6, "aabb"}, World{4, 6, "abba"}, World{4, 6, "aaab"},
                      World{4, 4, "abca"}, World{5, 7, "aabbc"},
                      // Gradients rounded to bf16: inside a node, and on the way to others.
                      World{1, 2, "a", true}, World{2, 2, "aa", true}, World{3, 6, "aaa", true},
                      World{2, 2, "ab", true}, World{2, 6, "ab", true}, World{4, 4, "abab", true},
                      World{4, 6, "aaab", true}, World{5, 7, "aabbc", true}),
    [](const auto& instance) {
      return fmt::format("{}Shards{}{}", instance.param.shards, instance.param.nodes,
                         instance.param.bf16 ? "Bf16" : "");
    });

// Bytes that rank 0 sends to the other nodes in a step, from the flight record.
std::size_t bytes_sent(const World& world) {
  std::size_t bytes = 0;
  const auto errors = run_threads(
      world.ranks,
      [&](Communicator& communicator) {
        const Machine machine(1);
        Options options = test_options(world.shards);
        options.engine.bf16_gradients = world.bf16;
        Engine engine(communicator, machine.context, options);
        run_backward(engine, 0);
        engine.finish();
        if (communicator.rank() == 0) {
          for (const std::string& line : communicator.flight_record().lines()) {
            std::size_t number = 0, count = 0;
            char type[32] = "";
            if (std::sscanf(line.c_str(), "send #%zu of %zu %31[a-z0-9]", &number, &count, type) ==
                3) {
              bytes += count * (std::string_view(type) == "bfloat16" ? 2 : 4);
            }
          }
        }
        engine.publish();
      },
      options_of(world));
  EXPECT_THAT(errors, Each(IsEmpty()));
  return bytes;
}

TEST(GradientEngine, Bf16GradientsHalveWhatTravelsBetweenNodes) {
  const std::size_t f32 = bytes_sent({2, 4, "ab"});
  // Half of each bucket's partials to the other rank, and the sums of the own half.
  EXPECT_NEAR(static_cast<double>(f32), kElements * 4.0, ModelState::kChunk * 4.0);
  EXPECT_EQ(bytes_sent({2, 4, "ab", true}), f32 / 2);
  EXPECT_EQ(bytes_sent({2, 4, "aa", true}), 0u);
}

TEST(GradientEngine, SameBitsAsProcesses) {
  for (const World& world : {World{2, 4, "aa"}, World{3, 4, "aaa"}, World{4, 6, "aabb"}}) {
    const std::string expected = train(*lone_rank(), test_options(world.shards));
    const auto check = [&](Communicator& communicator) {
      require(train(communicator, test_options(world.shards)) == expected, "other bits");
    };
    for (const auto& ended : run_processes(world.ranks, check, options_of(world))) {
      EXPECT_TRUE(ended.exited_with(0)) << ended.output;
    }
  }
}

TEST(GradientEngine, SmallAndLargeLayoutsAndBuckets) {
  for (const std::size_t elements :
       {std::size_t{1}, std::size_t{17}, ModelState::kChunk, 3 * ModelState::kChunk}) {
    for (const std::size_t bucket :
         {std::size_t{1}, ModelState::kChunk, 100 * ModelState::kChunk}) {
      for (const char* nodes : {"aaa", "aab"}) {
        const auto errors = run_threads(
            3,
            [&](Communicator& communicator) {
              const Machine machine(1);
              Options options = test_options(3, elements);
              options.engine.bucket_elements = bucket;
              Engine engine(communicator, machine.context, options);
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

TEST(GradientEngine, OwnedRangesTileTheLayoutOnEachNode) {
  const auto errors = run_threads(
      4,
      [](Communicator& communicator) {
        const Machine machine(1);
        Engine engine(communicator, machine.context, test_options(4));
        std::vector<float> owners(kElements, 0.0f);
        for (const Range& range : engine.owned_ranges()) {
          require(range.begin % ModelState::kChunk == 0, "begins at a chunk");
          require(range.end % ModelState::kChunk == 0 || range.end == kElements, "ends at a chunk");
          for (std::size_t i = range.begin; i < range.end; ++i) owners[i] += 1;
        }
        communicator.all_reduce(std::span(owners), comm::ReduceOp::kSum);
        const float nodes = 2;  // nodes of equal size: each covers everything once
        require(std::all_of(owners.begin(), owners.end(), [&](float n) { return n == nodes; }),
                "tiles");
      },
      options_of({4, 4, "abab"}));
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// The first buckets are reduced while the last layers of backward still run: nothing is left for
// finish() but the end.
TEST(GradientEngine, BucketsAreReducedBeforeTheLastOneIsReady) {
  const auto errors = run_threads(2, [](Communicator& communicator) {
    const Machine machine(1);
    Engine engine(communicator, machine.context, test_options(2));
    const auto shard = engine.shards().begin;
    const auto gradient = engine.gradient(shard);
    for (std::size_t i = 0; i < kElements; ++i) gradient[i] = gradient_value(shard, i, 0);
    const std::size_t bucket = 2 * ModelState::kChunk;
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

TEST(GradientEngine, TooFewShardsAreRefused) {
  const auto errors = run_threads(2, [](Communicator& communicator) {
    const Machine machine(1);
    EXPECT_THROW(Engine(communicator, machine.context, test_options(1)), InvalidArgument);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(GradientEngine, ARankKilledInBackwardEndsTheOthersByName) {
  for (const char* nodes : {"aaa", "aab"}) {
    const auto ended = run_processes(
        3,
        [](Communicator& communicator) {
          const Machine machine(1);
          Engine engine(communicator, machine.context, test_options(3));
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

TEST(GradientEngine, AStalledRankIsNamedWithTheBucketItOwes) {
  const auto options = [](int rank) {
    comm::Options result = comm::testing::test_options(rank);
    result.timeout = milliseconds(300);
    return result;
  };
  const auto errors = run_threads(
      2,
      [](Communicator& communicator) {
        const Machine machine(1);
        Engine engine(communicator, machine.context, test_options(2));
        if (communicator.rank() == 1) {
          while (!communicator.life().failed()) std::this_thread::sleep_for(milliseconds(5));
          communicator.life().throw_if_failed();
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

TEST(GradientEngine, NothingStaysOpen) {
  const auto once = [] {
    const auto errors = run_threads(2, [](Communicator& communicator) {
      const Machine machine(1);
      Engine engine(communicator, machine.context, test_options(2));
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

TEST(GradientEngine, TheFlightRecordHasEveryBucket) {
  const auto options = [](int rank) {
    comm::Options result = comm::testing::test_options(rank);
    result.node_id = rank == 0 ? "a" : "b";
    return result;
  };
  const auto check = [](Communicator& communicator) {
    const Machine machine(1);
    Engine engine(communicator, machine.context, test_options(2));
    run_backward(engine, 0);
    engine.finish();
    const auto records = communicator.flight_record().lines();
    std::size_t elements = 0;
    for (const std::string& line : records) {
      std::size_t number = 0, count = 0;
      if (std::sscanf(line.c_str(), "gradient bucket #%zu of %zu", &number, &count) == 2)
        elements += count;
    }
    require(elements == engine.elements(), "buckets");
    engine.publish();
  };
  EXPECT_THAT(run_threads(2, check), Each(IsEmpty()));
  EXPECT_THAT(run_threads(2, check, options), Each(IsEmpty()));
}

}  // namespace
}  // namespace tandem::dist
