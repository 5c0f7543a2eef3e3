// The plans: every shard has a place, the carries follow the tree, slices tile the buckets.
#include "tandem/dist/shard_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tandem::dist {
namespace {

std::string tree(int begin, int end) {
  if (end - begin == 1) return std::to_string(begin);
  const int middle = begin + comm::left_leaves(end - begin);
  return fmt::format("({}+{})", tree(begin, middle), tree(middle, end));
}

TEST(ShardPlan, RunsAreContiguousAndBalanced) {
  EXPECT_EQ(shards_of(0, 3, 4), (Range{0, 2}));
  EXPECT_EQ(shards_of(1, 3, 4), (Range{2, 3}));
  EXPECT_EQ(shards_of(2, 3, 4), (Range{3, 4}));
  for (int shards = 1; shards <= 20; ++shards) {
    for (int ranks = 1; ranks <= shards; ++ranks) {
      std::size_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range run = shards_of(rank, ranks, shards);
        EXPECT_EQ(run.begin, next);
        next = run.end;
        for (std::size_t s = run.begin; s < run.end; ++s) {
          EXPECT_EQ(rank_of_shard(static_cast<int>(s), ranks, shards), rank);
        }
      }
      EXPECT_EQ(next, static_cast<std::size_t>(shards));
    }
  }
}

// Runs the plan on texts instead of numbers.
TEST(ShardPlan, CarriesMakeTheTreesAdditionsInPlace) {
  for (int shards = 1; shards <= 64; ++shards) {
    for (int ranks = 1; ranks <= std::min(8, shards); ++ranks) {
      for (int rank = 0; rank < ranks; ++rank) {
        const Range run = shards_of(rank, ranks, shards);
        const ShardPlan plan = plan_shards(run, shards);
        std::vector<std::string> arenas(static_cast<std::size_t>(plan.num_arenas));
        std::size_t completed = 0;
        for (std::size_t i = 0; i < run.size(); ++i) {
          const ShardStep& step = plan.steps[i];
          arenas[static_cast<std::size_t>(step.arena)] = std::to_string(run.begin + i);
          for (const auto& addition : step.additions) {
            std::string& to = arenas[static_cast<std::size_t>(addition.first)];
            to = fmt::format("({}+{})", to, arenas[static_cast<std::size_t>(addition.second)]);
          }
          if (step.completes < 0) continue;
          EXPECT_EQ(step.completes, static_cast<int>(completed++));
        }
        ASSERT_EQ(completed, plan.partials.size());
        for (std::size_t j = 0; j < plan.partials.size(); ++j) {
          ASSERT_EQ(arenas[j], tree(plan.partials[j].begin, plan.partials[j].end));
        }
      }
    }
  }
}

TEST(ShardPlan, OneShardPerRankNeedsOneArena) {
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(plan_shards(shards_of(rank, 4, 4), 4).num_arenas, 1);
  EXPECT_EQ(plan_shards({0, 8}, 8).num_arenas, 4);  // three levels of carries
}

TEST(ShardPlan, SlicesTileABucketAtChunkBoundaries) {
  for (const std::size_t size : {1u, 99u, 100u, 101u, 950u, 1000u}) {
    for (const int parts : {1, 2, 3, 7}) {
      const Range range{500, 500 + size};
      std::size_t next = range.begin;
      for (int part = 0; part < parts; ++part) {
        const Range slice = slice_of(range, part, parts, 100);
        EXPECT_EQ(slice.begin, next);
        EXPECT_TRUE(slice.end == range.end || slice.end % 100 == 0);
        next = slice.end;
      }
      EXPECT_EQ(next, range.end);
    }
  }
}

TEST(ShardPlan, SlicesOfABucketTileItOnAllRanks) {
  for (const std::size_t bucket : {0u, 1u, 6u, 7u, 100u}) {
    for (const int ranks : {1, 2, 7, 40}) {
      const Range range{500, 1490};
      std::vector<Range> slices;
      for (int rank = 0; rank < ranks; ++rank) {
        slices.push_back(slice_of_bucket(range, bucket, rank, ranks, 100));
        if (ranks <= 10) {
          EXPECT_EQ(slices.back(), slice_of(range, rank, ranks, 100));
        }
      }
      std::sort(slices.begin(), slices.end(),
                [](const Range& a, const Range& b) { return a.end < b.end; });
      std::size_t next = range.begin;
      for (const Range& slice : slices) {
        if (slice.size() == 0) continue;
        EXPECT_EQ(slice.begin, next);
        next = slice.end;
      }
      EXPECT_EQ(next, range.end);
    }
  }
}

TEST(ShardPlan, ManyRanksTakeTurns) {
  constexpr int kRanks = 512;
  std::vector<std::size_t> chunks(kRanks);
  for (std::size_t bucket = 0; bucket < kRanks; ++bucket) {
    for (int rank = 0; rank < kRanks; ++rank) {
      chunks[static_cast<std::size_t>(rank)] +=
          slice_of_bucket({0, 1600}, bucket, rank, kRanks, 100).size() / 100;
    }
  }
  EXPECT_EQ(chunks, std::vector<std::size_t>(kRanks, 16));
}

}  // namespace
}  // namespace tandem::dist
