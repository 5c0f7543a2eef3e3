#include "tandem/models/layers/post_norm/relative_embeddings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "support/test_support.h"
#include "tandem/core/buffer.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/kernels/disentangled_attention.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using ::testing::ElementsAre;

TEST(PositionBucket, NearDistancesHaveABucketEach) {
  for (std::ptrdiff_t distance = -4; distance <= 4; ++distance)
    EXPECT_EQ(position_bucket(distance, 8, 64), distance);
}

TEST(PositionBucket, FarDistancesShareBuckets) {
  for (std::ptrdiff_t distance = 1; distance < 64; ++distance) {
    ASSERT_EQ(position_bucket(-distance, 8, 64), -position_bucket(distance, 8, 64));
    ASSERT_GE(position_bucket(distance, 8, 64), position_bucket(distance - 1, 8, 64));
  }
  EXPECT_EQ(position_bucket(63, 8, 64), 7);
  EXPECT_EQ(position_bucket(20, 8, 64), 6);
}

class PositionBucketGolden : public tandem::testing::SharedDataTest {};

TEST_F(PositionBucketGolden, IsThatOfTransformers) {
  const auto golden = nlohmann::json::parse(
      read_file(tandem::testing::shared_data() / "golden/next/encoders/buckets.json"));
  struct Table {
    const char* name;
    std::ptrdiff_t first;
    std::size_t buckets, farthest;
  };
  for (const Table& table :
       {Table{"deberta_256_512", -511, 256, 512}, Table{"deberta_8_64", -63, 8, 64},
        Table{"deberta_256_1024_from_-1023", -1023, 256, 1024}}) {
    std::ptrdiff_t distance = table.first;
    for (const std::ptrdiff_t bucket : golden.at(table.name)) {
      EXPECT_EQ(position_bucket(distance, table.buckets, table.farthest), bucket)
          << table.name << " " << distance;
      ++distance;
    }
    EXPECT_EQ(distance, -table.first + 1) << table.name;
  }
}

// A table of 8 rows of 4 columns; row i of the norm's input begins with i.
class RelativeEmbeddingsTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kHidden = 4, kMaxRows = 20, kBuckets = 4;

  RelativeEmbeddingsTest() {
    layout_.add("before", {5}, nn::ParameterKind::kBias);
    embeddings_.add_to(layout_, "norm", "table");
    weights_.resize(layout_.size());
    for (std::size_t i = 0; i < 2 * kBuckets * kHidden; ++i)
      weights_[table() + i] = static_cast<float>(i % kHidden == 0 ? i / kHidden : i % 3);
    for (std::size_t i = 0; i < kHidden; ++i) weights_[layout_.find("norm.weight")->offset + i] = 1;
  }
  std::size_t table() const { return layout_.find("table")->offset; }

  nn::Pass pass(std::vector<std::uint32_t> row_begin) {
    row_begin_ = std::move(row_begin);
    keys_.clear();
    for (std::size_t i = 1; i < row_begin_.size(); ++i)
      keys_.push_back(row_begin_[i] - row_begin_[i - 1]);
    return {context_, {weights_, {}}, {row_begin_, keys_, {}}, {}};
  }
  std::span<std::byte> memory(std::size_t rows) {
    buffer_ = Buffer(embeddings_.bytes(rows, nn::Precision::kFloat32, /*training=*/true));
    return buffer_.as<std::byte>();
  }

  testing::TestContext owner_;
  kernels::Context context_ = owner_;
  nn::ParameterLayout layout_;
  RelativeEmbeddings embeddings_{{.hidden_size = kHidden,
                                  .max_rows = kMaxRows,
                                  .buckets = kBuckets,
                                  .farthest = 16,
                                  .layer_norm_eps = 1e-7}};
  std::vector<float> weights_;
  std::vector<std::uint32_t> row_begin_, keys_;
  Buffer buffer_;
};

TEST_F(RelativeEmbeddingsTest, TheTableDecaysAndItsNormDoesNot) {
  EXPECT_TRUE(layout_.find("table")->weight_decay);
  EXPECT_FALSE(layout_.find("norm.weight")->weight_decay);
  EXPECT_EQ(layout_.find("table")->shape, (std::vector<std::size_t>{2 * kBuckets, kHidden}));
}

// Buckets of 0, 1, 2, 3, … are 0, 1, 2, 3, 3: rows of the table from the middle, by query − key.
TEST_F(RelativeEmbeddingsTest, RowsAreThoseOfTheLongestSequence) {
  const nn::Pass of_batch = pass({0, 2, 7, 8});
  const auto region = memory(8);
  embeddings_.forward(of_batch, region);
  const auto positions = embeddings_.positions_of(of_batch, region);
  EXPECT_EQ(positions.rows, 7u);
  EXPECT_EQ(positions.first, 1u);
  EXPECT_THAT(positions.row_of, ElementsAre(0, 0, 1, 2, 3, 4, 5, 6, 6));
  std::vector<float> firsts;
  for (std::size_t row = 0; row < positions.rows; ++row)
    firsts.push_back(positions.norm.sum[row * kHidden]);
  EXPECT_THAT(firsts, ElementsAre(7, 6, 5, 4, 3, 2, 1));
  EXPECT_EQ(positions.sample[0], kernels::kNoSample);
}

// A distance of the last bucket and one beyond the table: both have its last row.
TEST_F(RelativeEmbeddingsTest, FartherDistancesHaveTheLastRow) {
  const nn::Pass of_batch = pass({0, kMaxRows});
  const auto region = memory(kMaxRows);
  embeddings_.forward(of_batch, region);
  const auto positions = embeddings_.positions_of(of_batch, region);
  EXPECT_EQ(positions.rows, 2 * kBuckets + 1);
  EXPECT_EQ(positions.first, 0u);
  EXPECT_EQ(positions.norm.sum[0], 7.0f);
  EXPECT_EQ(positions.norm.sum[kHidden], 7.0f);
  EXPECT_EQ(positions.norm.sum[2 * kBuckets * kHidden], 0.0f);
}

// The gradient of the table by differences of a sum of the normed rows; rows that no text needs
// have none.
TEST_F(RelativeEmbeddingsTest, BackwardIsTheDerivative) {
  const nn::Pass of_batch = pass({0, 3});
  const auto region = memory(3);
  const auto weighted = [&] {
    embeddings_.forward(of_batch, region);
    const auto positions = embeddings_.positions_of(of_batch, region);
    double sum = 0;
    for (std::size_t i = 0; i < positions.normed.size(); ++i)
      sum += static_cast<double>(positions.normed[i]) * static_cast<double>(i % 7);
    return sum;
  };
  weighted();
  embeddings_.clear_sums(of_batch, region);
  const auto positions = embeddings_.positions_of(of_batch, region);
  ASSERT_EQ(positions.rows, 5u);
  for (std::size_t i = 0; i < positions.grad.size(); ++i) {
    EXPECT_EQ(positions.grad[i], 0.0f);
    positions.grad[i] = static_cast<float>(i % 7);
  }
  std::vector<float> grads(layout_.size(), 9.0f);
  embeddings_.backward(of_batch, region, {grads, /*accumulate=*/false});
  for (std::size_t i = 0; i < 2 * kBuckets * kHidden; ++i) {
    const std::size_t row = i / kHidden;
    float& value = weights_[table() + i];
    const float saved = value;
    value = saved + 0x1p-8f;
    const double above = weighted();
    value = saved - 0x1p-8f;
    const double below = weighted();
    value = saved;
    EXPECT_NEAR(grads[table() + i], (above - below) * 0x1p7, 2e-3) << i;
    if (row < 2 || row > 6) {
      EXPECT_EQ(grads[table() + i], 0.0f) << i;
    }
  }
  EXPECT_EQ(grads[0], 9.0f);
}

// Pairs of a row, or of a token, and a position that it reaches, counted one by one.
TEST_F(RelativeEmbeddingsTest, ProductsAreThoseOfThePositionsThatDistancesReach) {
  const auto reached = [](std::ptrdiff_t lowest, std::ptrdiff_t highest) {
    std::set<std::ptrdiff_t> positions;
    for (std::ptrdiff_t d = lowest; d <= highest; ++d)
      positions.insert(position_bucket(d, kBuckets, 16));
    return positions.size();
  };
  for (std::ptrdiff_t rows = 1; rows <= static_cast<std::ptrdiff_t>(kMaxRows); ++rows) {
    for (std::ptrdiff_t keys = 1; keys <= rows; ++keys) {
      std::size_t expected = 0;
      for (std::ptrdiff_t i = 0; i < rows; ++i) expected += reached(-i, keys - 1 - i);
      for (std::ptrdiff_t j = 0; j < keys; ++j) expected += reached(j - rows + 1, j);
      EXPECT_EQ(
          embeddings_.products(static_cast<std::size_t>(rows), static_cast<std::size_t>(keys)),
          expected)
          << rows << " rows, " << keys << " tokens";
    }
  }
}

TEST_F(RelativeEmbeddingsTest, MemoryIsThatOfTheLongestSequence) {
  const auto bytes = [&](std::size_t rows, bool training) {
    return embeddings_.bytes(rows, nn::Precision::kBfloat16, training);
  };
  EXPECT_EQ(bytes(1000, false), bytes(kMaxRows, false));
  EXPECT_GT(bytes(1000, true), bytes(1000, false));
  EXPECT_LT(bytes(2, false), bytes(3, false));
  EXPECT_EQ(embeddings_.product_rows(1), 1u);
  EXPECT_EQ(embeddings_.product_rows(3), 5u);
  EXPECT_THROW(embeddings_.forward(pass({0, kMaxRows + 1}), memory(kMaxRows + 1)), InvalidArgument);
}

}  // namespace
}  // namespace tandem::models
