#include "tandem/tasks/several_sets.h"

#include <gtest/gtest.h>

#include <set>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/tasks/no_duplicates.h"

namespace tandem::tasks {
namespace {

using nlohmann::json;

// tests/parity/make_several_sets_golden.py: every fourth row of a set has the same second text.
Sampler no_duplicates_of(std::uint32_t first_row, std::size_t rows) {
  std::vector<std::uint32_t> values;
  for (std::uint32_t row = 0; row < rows; ++row) values.push_back(row);
  for (std::uint32_t row = 0; row < rows; ++row)
    values.push_back((first_row + row) % 4 == 0 ? 1000u : 2000u + row);
  return no_duplicates(values, 2, /*over_shards=*/false);
}

std::vector<SampledSet> sets_of(const std::vector<std::size_t>& sizes, bool duplicates) {
  std::vector<SampledSet> sets;
  std::uint32_t first = 0;
  for (const std::size_t rows : sizes) {
    sets.push_back({rows, duplicates ? Sampler() : no_duplicates_of(first, rows)});
    first += static_cast<std::uint32_t>(rows);
  }
  return sets;
}

TEST(SeveralSets, BatchesAreThoseOfTheTrainerOfSentenceTransformers) {
  const json golden = json::parse(read_file(std::filesystem::path(TANDEM_SOURCE_DIR) /
                                            "tests/parity/golden/several_sets.json"));
  const auto sizes = golden.at("sizes").get<std::vector<std::size_t>>();
  for (const json& run : golden.at("runs")) {
    const auto order = set_order_named(run.at("multi_dataset_batch_sampler").get<std::string>());
    const bool duplicates = run.at("batch_sampler") == "batch_sampler";
    const Sampler sampler = several_sets(sets_of(sizes, duplicates), order, false);
    EpochRequest request{.seed = run.at("seed"),
                         .batch_size = run.at("per_device_train_batch_size"),
                         .drop_last = run.at("dataloader_drop_last")};
    for (const json& epoch : run.at("batches")) {
      const auto expected = epoch.get<Batches>();
      Batches found = sampler.batches(request);
      if (duplicates) {
        EXPECT_EQ(sampler.count(request), expected.size());
      }
      ASSERT_GE(found.size(), expected.size());
      found.resize(expected.size());
      EXPECT_EQ(found, expected) << run.dump().substr(0, 200) << " epoch " << request.epoch;
      ++request.epoch;
    }
  }
}

// The shards of a round have rows of one set, and no row comes twice.
TEST(SeveralSets, ShardsOfARoundShareASet) {
  const Sampler sampler = several_sets(sets_of({50, 31, 4}, true), SetOrder::kProportional, true);
  const EpochRequest request{.seed = 1, .batch_size = 4, .shards = 3};
  const Batches batches = sampler.batches(request);
  EXPECT_EQ(batches.size(), sampler.count(request));
  // 12 rows a round; a last round of two rows is left out.
  EXPECT_EQ(batches.size(), 3u * (4 + 3 + 1));
  std::set<std::uint32_t> seen;
  for (std::size_t round = 0; round < batches.size(); round += 3) {
    std::set<int> sets;
    for (std::size_t shard = 0; shard < 3; ++shard) {
      for (const std::uint32_t row : batches[round + shard]) {
        EXPECT_TRUE(seen.insert(row).second);
        sets.insert(row < 50 ? 0 : row < 81 ? 1 : 2);
      }
    }
    EXPECT_EQ(sets.size(), 1u);
  }
}

TEST(SeveralSets, RefusesUnknownOrders) { EXPECT_THROW(set_order_named("random"), ConfigError); }

}  // namespace
}  // namespace tandem::tasks
