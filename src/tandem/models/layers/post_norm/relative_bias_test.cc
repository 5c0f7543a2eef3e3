#include "tandem/models/layers/post_norm/relative_bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/test_support.h"
#include "tandem/core/buffer.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using ::testing::ElementsAre;

TEST(RelativeBias, NearDistancesHaveABucketEach) {
  EXPECT_EQ(relative_bucket(0), 0u);
  for (std::ptrdiff_t distance = 1; distance < 8; ++distance) {
    EXPECT_EQ(relative_bucket(-distance), static_cast<std::size_t>(distance));
    EXPECT_EQ(relative_bucket(distance), 16 + static_cast<std::size_t>(distance));
  }
}

// Each bucket's range is √2 times as long as the one before it.
TEST(RelativeBias, FarDistancesShareBuckets) {
  std::vector<std::ptrdiff_t> firsts;
  for (std::ptrdiff_t distance = 1; distance < 1000; ++distance) {
    ASSERT_EQ(relative_bucket(distance), 16 + relative_bucket(-distance)) << distance;
    if (relative_bucket(-distance) != relative_bucket(1 - distance)) firsts.push_back(distance);
  }
  EXPECT_THAT(firsts, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91));
}

class RelativeBiasGolden : public tandem::testing::SharedDataTest {};

TEST_F(RelativeBiasGolden, HasTheBucketsOfTransformers) {
  const auto golden = nlohmann::json::parse(
      read_file(tandem::testing::shared_data() / "golden/next/encoders/buckets.json"));
  std::ptrdiff_t distance = golden["relative_from"];
  for (const std::size_t bucket : golden["mpnet_32_128"])
    EXPECT_EQ(relative_bucket(distance++), bucket) << distance - 1;
  EXPECT_EQ(distance, 512);
}

// A table for two heads: 100 head + bucket.
class RelativeBiasTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kHeads = 2, kMaxRows = 20;

  RelativeBiasTest() {
    layout_.add("before", {5}, nn::ParameterKind::kBias);
    bias_.add_to(layout_, "table");
    weights_.resize(layout_.size());
    for (std::size_t i = 0; i < kRelativeBuckets * kHeads; ++i)
      weights_[table() + i] = static_cast<float>(100 * (i % kHeads) + i / kHeads);
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
    buffer_ = Buffer(bias_.bytes(rows, nn::Precision::kFloat32, /*training=*/true));
    return buffer_.as<std::byte>();
  }

  testing::TestContext owner_;
  kernels::Context context_ = owner_;
  nn::ParameterLayout layout_;
  RelativeBias bias_{kHeads, kMaxRows};
  std::vector<float> weights_;
  std::vector<std::uint32_t> row_begin_, keys_;
  Buffer buffer_;
};

TEST_F(RelativeBiasTest, TheTableDoesNotDecay) {
  EXPECT_FALSE(layout_.find("table")->weight_decay);
  EXPECT_EQ(layout_.find("table")->shape, (std::vector<std::size_t>{32, kHeads}));
}

TEST_F(RelativeBiasTest, ABandHasTheDistancesOfTheLongestSequence) {
  const nn::Pass of_batch = pass({0, 2, 5, 6});
  const auto region = memory(6);
  bias_.forward(of_batch, region);
  const kernels::PositionBias band = bias_.band(of_batch, region);
  EXPECT_EQ(band.reach, 2u);
  EXPECT_THAT(std::vector(band.values, band.values + 10),
              ElementsAre(2, 1, 0, 17, 18, 102, 101, 100, 117, 118));
}

TEST_F(RelativeBiasTest, TheGradientIsSummedByBucket) {
  const nn::Pass of_batch = pass({0, 14});
  const auto region = memory(14);
  bias_.forward(of_batch, region);
  bias_.clear_sums(of_batch, region);
  float* sums = bias_.band_sums(of_batch, region);
  const std::size_t width = 27;
  for (std::size_t i = 0; i < kHeads * width; ++i) {
    EXPECT_EQ(sums[i], 0.0f);
    sums[i] = static_cast<float>(i + 1);
  }
  std::vector<float> grads(layout_.size(), 7.0f);
  bias_.backward(of_batch, region, {grads, /*accumulate=*/false});
  const auto gradient = [&](std::size_t bucket, std::size_t head) {
    return grads[table() + bucket * kHeads + head];
  };
  EXPECT_EQ(gradient(0, 0), 14.0f);  // distance 0 is the 14th
  EXPECT_EQ(gradient(0, 1), 27.0f + 14.0f);
  EXPECT_EQ(gradient(7, 0), 7.0f);                            // −7
  EXPECT_EQ(gradient(9, 0), 2.0f + 1.0f);                     // −12 and −13
  EXPECT_EQ(gradient(24, 0), 22.0f + 23.0f + 24.0f + 25.0f);  // 8 … 11
  EXPECT_EQ(gradient(31, 0), 0.0f);                           // none of the sequence is so far
  EXPECT_EQ(grads[0], 7.0f);
  bias_.backward(of_batch, region, {grads, /*accumulate=*/true});
  EXPECT_EQ(gradient(9, 0), 6.0f);
}

TEST_F(RelativeBiasTest, MemoryIsThatOfTheLongestSequence) {
  const auto bytes = [&](std::size_t rows, bool training) {
    return bias_.bytes(rows, nn::Precision::kBfloat16, training);
  };
  EXPECT_EQ(bytes(1, false), kHeads * sizeof(float));
  EXPECT_EQ(bytes(1000, false), kHeads * (2 * kMaxRows - 1) * sizeof(float));
  EXPECT_GE(bytes(1000, true), 2 * bytes(1000, false));
  EXPECT_THROW(bias_.forward(pass({0, kMaxRows + 1}), memory(kMaxRows + 1)), InvalidArgument);
}

}  // namespace
}  // namespace tandem::models
