// Tests of the order of samples.
#include "tandem/data/epoch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/golden_files.h"
#include "support/test_support.h"
#include "tandem/core/error.h"

namespace tandem::data {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Indices = std::vector<std::uint32_t>;

Indices to_vector(std::span<const std::uint32_t> batch) { return {batch.begin(), batch.end()}; }

// transformers.trainer_pt_utils.get_length_grouped_indices (4.57.6) with batches of 2 and
// torch.Generator().manual_seed(42); ties, a shorter last run, and fewer samples than four batches.
TEST(GroupByLength, IsThatOfTransformers) {
  const auto grouped = [](std::size_t count, std::uint64_t seed) {
    std::vector<std::uint32_t> lengths(count);
    for (std::uint32_t i = 0; i < count; ++i) lengths[i] = (i * 37) % 23 + 5;
    return group_by_length(epoch_permutation(count, seed, 0), lengths, 2);
  };
  EXPECT_THAT(grouped(60, 42),
              ElementsAreArray({41, 16, 52, 47, 42, 55, 50, 22, 40, 35, 30, 15, 38, 10, 26,
                                59, 31, 49, 57, 1,  37, 32, 27, 58, 53, 48, 28, 51, 54, 21,
                                39, 29, 24, 14, 9,  12, 20, 33, 56, 0,  23, 46, 13, 36, 8,
                                3,  44, 11, 34, 6,  19, 4,  45, 17, 25, 43, 18, 7,  2,  5}));
  EXPECT_THAT(grouped(5, 43), ElementsAre(3, 1, 4, 2, 0));
  EXPECT_THAT(grouped(0, 1), IsEmpty());
}

TEST(EpochPermutation, IsThatOfTorch) {
  Indices order = epoch_permutation(88524, 42, 0);
  ASSERT_EQ(order.size(), 88524u);
  Indices head(order.begin(), order.begin() + 8);
  EXPECT_THAT(head, ElementsAre(67938, 66210, 32584, 9517, 13710, 73570, 36280, 88128));
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, sequential_order(88524));
  EXPECT_EQ(epoch_permutation(1000, 42, 3), epoch_permutation(1000, 45, 0));
  EXPECT_THAT(epoch_permutation(0, 1, 0), IsEmpty());
  EXPECT_THAT(epoch_permutation(1, 1, 0), ElementsAre(0));
  EXPECT_THROW(epoch_permutation(300'000'000, 1, 0), InvalidArgument);
}

// accelerate's BatchSamplerShard, step by step as its iterator does it (even batches, not split).
std::vector<std::vector<Indices>> accelerate_shards(const Indices& order, std::size_t batch_size,
                                                    std::size_t world) {
  std::vector<Indices> batches;
  for (std::size_t i = 0; i < order.size(); i += batch_size) {
    batches.emplace_back(
        order.begin() + static_cast<std::ptrdiff_t>(i),
        order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), i + batch_size)));
  }
  std::vector<std::vector<Indices>> shards(world);
  if (world == 1) {
    shards[0] = batches;
    return shards;
  }
  Indices fill = order;  // what missing samples are taken from, again and again
  while (!fill.empty() && fill.size() < world * batch_size)
    fill.insert(fill.end(), order.begin(), order.end());
  std::size_t cycle = 0;
  for (std::size_t b = 0; b < batches.size() || b % world != 0; ++b) {
    Indices batch = b < batches.size() ? batches[b] : Indices();
    while (batch.size() < batch_size) batch.push_back(fill[cycle++]);
    shards[b % world].push_back(batch);
  }
  return shards;
}

TEST(EpochBatches, DealsLikeAccelerate) {
  for (std::size_t samples = 1; samples < 40; ++samples) {
    const Indices order = epoch_permutation(samples, 7, 0);
    for (std::size_t batch_size = 1; batch_size < 9; ++batch_size) {
      for (std::size_t world = 1; world < 6; ++world) {
        const auto expected = accelerate_shards(order, batch_size, world);
        const EpochBatches batches(order, batch_size, world);
        std::size_t unique = 0;
        for (std::size_t shard = 0; shard < world; ++shard) {
          ASSERT_EQ(batches.size(), expected[shard].size());
          for (std::size_t step = 0; step < batches.size(); ++step) {
            ASSERT_EQ(to_vector(batches.batch(step, shard)), expected[shard][step])
                << samples << " samples, batch " << batch_size << ", world " << world;
            unique += batches.num_unique(step, shard);
          }
        }
        ASSERT_EQ(unique, samples);
      }
    }
  }
}

TEST(EpochBatches, DropLastLeavesOutWhatIsNotFull) {
  const EpochBatches one(sequential_order(10), 4, 1, true);
  EXPECT_EQ(one.size(), 2u);
  const EpochBatches two(sequential_order(15), 4, 2, true);  // 3 full batches: one round
  ASSERT_EQ(two.size(), 1u);
  EXPECT_THAT(to_vector(two.batch(0, 1)), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(EpochBatches(sequential_order(3), 4, 1, true).size(), 0u);
}

// accelerate 1.15's BatchSamplerShard with even_batches=False, for ranks that all have a last
// batch.
TEST(EpochBatches, UnevenBatchesAreNotFilledUp) {
  const EpochBatches two(sequential_order(11), 2, 2, false, /*even_batches=*/false);
  ASSERT_EQ(two.size(), 3u);
  EXPECT_THAT(two.batch(2, 0), ElementsAre(8, 9));
  EXPECT_THAT(two.batch(2, 1), ElementsAre(10));
  EXPECT_EQ(two.num_unique(2, 1), 1u);
  const EpochBatches three(sequential_order(23), 4, 3, false, false);
  ASSERT_EQ(three.size(), 2u);
  EXPECT_THAT(three.batch(1, 1), ElementsAre(16, 17, 18, 19));
  EXPECT_THAT(three.batch(1, 2), ElementsAre(20, 21, 22));
  // A full last round is the same either way; a shard without a sample is refused.
  EXPECT_THAT(EpochBatches(sequential_order(12), 2, 2, false, false).batch(2, 1),
              ElementsAre(10, 11));
  EXPECT_THROW(EpochBatches(sequential_order(10), 2, 2, false, false), InvalidArgument);
  EXPECT_EQ(EpochBatches(sequential_order(10), 2, 2, true, false).size(), 2u);
}

TEST(EpochBatches, BalanceKeepsRoundsAndSizesAndEvensTheWork) {
  constexpr std::size_t kBatch = 6;
  std::vector<float> cost(1000);
  for (std::size_t i = 0; i < cost.size(); ++i) cost[i] = static_cast<float>(60 + i * 7919 % 325);
  const auto sum = [&](std::span<const std::uint32_t> batch) {
    double total = 0;
    for (const std::uint32_t sample : batch) total += cost[sample];
    return total;
  };
  for (const std::size_t shards : {2, 3, 4}) {
    const EpochBatches dealt(epoch_permutation(cost.size(), 42, 0), kBatch, shards);
    EpochBatches balanced = dealt;
    balanced.balance(cost);
    ASSERT_EQ(balanced.size(), dealt.size());
    double spread_before = 0, spread_after = 0;
    for (std::size_t step = 0; step < dealt.size(); ++step) {
      std::vector<std::uint32_t> before, after;
      std::vector<double> work_before, work_after;
      for (std::size_t shard = 0; shard < shards; ++shard) {
        ASSERT_EQ(balanced.batch(step, shard).size(), kBatch);
        for (const std::uint32_t s : dealt.batch(step, shard)) before.push_back(s);
        for (const std::uint32_t s : balanced.batch(step, shard)) after.push_back(s);
        work_before.push_back(sum(dealt.batch(step, shard)));
        work_after.push_back(sum(balanced.batch(step, shard)));
      }
      std::sort(before.begin(), before.end());
      std::sort(after.begin(), after.end());
      ASSERT_EQ(after, before) << "step " << step;
      const auto spread = [](const std::vector<double>& work) {
        const auto [least, most] = std::minmax_element(work.begin(), work.end());
        return *most - *least;
      };
      spread_before += spread(work_before);
      spread_after += spread(work_after);
    }
    EXPECT_LT(spread_after, spread_before / 5) << shards << " shards";
  }
}

TEST(EpochBatches, BalanceLeavesOneShardAndIncompleteRoundsAlone) {
  const std::vector<float> cost = {5, 1, 9, 3, 7, 2, 8};
  EpochBatches one({0, 1, 2, 3, 4, 5, 6}, 2);
  one.balance(cost);
  EXPECT_EQ(one.batch(0, 0)[0], 0u);
  EXPECT_EQ(one.batch(3, 0)[0], 6u);
  EpochBatches two({0, 1, 2, 3, 4, 5, 6}, 2, 2, /*drop_last=*/true);
  two.balance(cost);
  ASSERT_EQ(two.size(), 1u);
  // 9 to shard 0, 5 and 3 to shard 1, which is then full, 1 to shard 0.
  EXPECT_THAT(two.batch(0, 0), ElementsAre(2, 1));
  EXPECT_THAT(two.batch(0, 1), ElementsAre(0, 3));
}

TEST(EpochBatches, NoSamplesNoBatches) {
  EXPECT_EQ(EpochBatches(Indices{}, 4, 2).size(), 0u);
  EXPECT_THROW(EpochBatches(sequential_order(3), 0, 2), InvalidArgument);
  EXPECT_THROW(EpochBatches(sequential_order(3), 2, 0), InvalidArgument);
}

class EpochOrderGolden : public testing::SharedDataTest {
 protected:
  static void compare(const std::string& file, std::size_t world, std::size_t batch_size) {
    const auto golden = testing::read_gzip_json(testing::shared_data() / "golden" / file);
    const EpochBatches batches(epoch_permutation(4457, 42, 0), batch_size, world);
    for (std::size_t rank = 0; rank < world; ++rank) {
      const auto expected = golden["ranks"][rank]["indices"].get<Indices>();
      ASSERT_GE(expected.size(), 60u);
      Indices order;
      for (std::size_t step = 0; order.size() < expected.size(); ++step) {
        const auto batch = batches.batch(step, rank);
        order.insert(order.end(), batch.begin(), batch.end());
      }
      EXPECT_EQ(order, expected) << file << " rank " << rank;
    }
  }
};

TEST_F(EpochOrderGolden, OneRank) { compare("trajectory_np1.json.gz", 1, 12); }
TEST_F(EpochOrderGolden, TwoRanks) { compare("trajectory_np2.json.gz", 2, 6); }

TEST(EpochBatches, BatchesOfASamplerKeepTheirSizes) {
  const std::vector<Indices> batches = {{4, 2, 0}, {1}, {3, 5}};
  const EpochBatches two(batches, 2, 2);
  const auto batch = [&](std::size_t step, std::size_t shard) {
    const auto own = two.batch(step, shard);
    return Indices(own.begin(), own.end());
  };
  EXPECT_EQ(two.size(), 2u);
  EXPECT_EQ(batch(0, 0), batches[0]);
  EXPECT_EQ(batch(0, 1), batches[1]);
  EXPECT_EQ(batch(1, 0), batches[2]);
  EXPECT_EQ(batch(1, 1), batches[0]);  // repeated
  EXPECT_EQ(two.num_unique(0, 0), 3u);
  EXPECT_EQ(two.num_unique(1, 0), 2u);
  EXPECT_EQ(two.num_unique(1, 1), 0u);

  const EpochBatches fewer(batches, 1, 2);
  EXPECT_EQ(fewer.size(), 2u);
  EXPECT_EQ(fewer.batch(1, 0).size(), 1u);

  EXPECT_THROW(EpochBatches(std::vector<Indices>{}, 1, 1), InvalidArgument);
  EXPECT_THROW(EpochBatches(std::vector<Indices>(1), 1, 1), InvalidArgument);
}

}  // namespace
}  // namespace tandem::data
