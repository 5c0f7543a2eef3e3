#include "tandem/tasks/embedding/group_by_label.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tandem/core/error.h"

namespace tandem::tasks::embedding {
namespace {

// 7 occurs once and 0 nine times.
const std::vector<float> kLabels = {2, 0, 1, 0, 0, 1, 2, 0, 0, 1, 7, 0, 1, 1, 0, 2, 2, 0, 0, 1, 0};

Batches batches_of(std::uint64_t epoch, std::size_t size, std::size_t shards = 1) {
  return group_by_label(kLabels, shards > 1)
      .batches({.seed = 42, .epoch = epoch, .batch_size = size, .shards = shards});
}

// Recorded with GroupByLabelBatchSampler of sentence-transformers 5.7.0 and torch 2.15.0.
TEST(GroupByLabel, BatchesAreThoseOfSentenceTransformers) {
  EXPECT_EQ(batches_of(0, 6),
            (Batches{{0, 6, 1, 18, 2, 19}, {16, 15, 11, 20, 13, 5}, {9, 12, 4, 17}}));
  EXPECT_EQ(batches_of(3, 8),
            (Batches{{15, 16, 17, 4, 19, 2, 13, 9}, {3, 11, 6, 0, 20, 14, 5, 12}}));
  EXPECT_EQ(group_by_label(kLabels, false).epoch_rows, 16u);
}

TEST(GroupByLabel, EveryLabelOfABatchHasTwoRows) {
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    std::set<std::uint32_t> seen;
    for (const auto& batch : batches_of(epoch, 4)) {
      std::map<float, int> rows_of_label;
      for (const std::uint32_t row : batch) {
        EXPECT_TRUE(seen.insert(row).second) << "row " << row << " twice in epoch " << epoch;
        ++rows_of_label[kLabels[row]];
      }
      for (const auto& [label, rows] : rows_of_label) EXPECT_GE(rows, 2) << "label " << label;
    }
  }
}

TEST(GroupByLabel, TwoRowsAtTheEndAreLeftOut) {
  const std::vector<float> labels = {0, 1, 0, 1, 0, 1};
  const Batches batches =
      group_by_label(labels, false).batches({.seed = 0, .epoch = 0, .batch_size = 10});
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].size(), 4u);  // one pair of each label; the third rows have no partner
  EXPECT_EQ(batches_of(0, 14).size(), 1u);
}

TEST(GroupByLabel, ABatchOverShardsIsDealtToThem) {
  const Batches whole = batches_of(1, 8), parts = batches_of(1, 4, 2);
  ASSERT_EQ(parts.size(), 2 * whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<std::uint32_t> joined = parts[2 * i];
    joined.insert(joined.end(), parts[2 * i + 1].begin(), parts[2 * i + 1].end());
    EXPECT_EQ(joined, whole[i]);
  }
}

TEST(GroupByLabel, RefusesDataAndBatchesWithoutPairs) {
  EXPECT_THROW(group_by_label(std::vector<float>{0, 1, 2, 2}, false), DataError);
  EXPECT_THROW(group_by_label(std::vector<float>{}, false), DataError);
  EXPECT_THROW(check_batch_of_labels(2), ConfigError);
  EXPECT_THROW(check_batch_of_labels(7), ConfigError);
  EXPECT_NO_THROW(check_batch_of_labels(4));
}

}  // namespace
}  // namespace tandem::tasks::embedding
