#include "tandem/quant/scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tandem/core/error.h"

namespace tandem::quant {
namespace {

using ::testing::ElementsAre;

TEST(Scheme, TheLargestWeightOfARowIs127) {
  const Int8Matrix matrix =
      quantize_rows(2, 3, std::vector<float>{-2.54f, 1.27f, 0.01f, 0.5f, 0.25f, -0.125f});
  EXPECT_THAT(matrix.values, ElementsAre(-127, 64, 0, 127, 64, -32));  // 63.5 goes to the even 64
  EXPECT_EQ(matrix.scale, (std::vector<float>{2.54f / 127, 0.5f / 127}));
}

TEST(Scheme, ARowOfZerosHasScaleOne) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();  // kTiny / 127 is 0
  const Int8Matrix matrix = quantize_rows(2, 2, std::vector<float>{0, -0.0f, kTiny, 0});
  EXPECT_THAT(matrix.values, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(matrix.scale, ElementsAre(1.0f, 1.0f));
}

TEST(Scheme, NoWeightIsFurtherThanHalfAStep) {
  constexpr std::size_t kRows = 37, kColumns = 211;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> weight(kRows * kColumns), back(weight.size());
  for (float& w : weight) w = normal(generator);
  for (std::size_t c = 0; c < kColumns; ++c) weight[c] *= 1e-30f;  // rows of other sizes
  for (std::size_t c = 0; c < kColumns; ++c) weight[kColumns + c] *= 1e30f;
  const Int8Matrix matrix = quantize_rows(kRows, kColumns, weight);
  dequantize(matrix, back);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const double scale = matrix.scale[i / kColumns];
    // The quotient is rounded to f32 before it is rounded to an integer: 127 · 2⁻²⁴ at most.
    EXPECT_LE(std::fabs(static_cast<double>(weight[i]) - back[i]), scale * (0.5 + 2e-5)) << i;
    EXPECT_GE(matrix.values[i], -127);
  }
  // Values on the grid stay: quantizing the result changes nothing.
  Int8Matrix again = quantize_rows(kRows, kColumns, back);
  EXPECT_EQ(again.values, matrix.values);
}

TEST(Scheme, BadWeightsAreRefused) {
  EXPECT_THROW(quantize_rows(1, 2, std::vector<float>{1, NAN}), InvalidArgument);
  EXPECT_THROW(quantize_rows(1, 2, std::vector<float>{1, INFINITY}), InvalidArgument);
  EXPECT_THROW(quantize_rows(2, 2, std::vector<float>{1, 2}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::quant
