#include "tandem/kernels/dropout.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The specification of docs/numerics.md once more, written for one element and from the text.
bool keeps_by_hand(std::uint64_t seed, std::uint64_t step, std::uint32_t site, std::uint64_t sample,
                   float p, std::uint32_t row, std::uint32_t column) {
  const auto mix = [](std::uint64_t z) {
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  };
  const std::uint64_t key = mix(mix(mix(mix(seed) ^ step) ^ site) ^ sample);
  const std::uint32_t n = row * 32768u + column / 2;
  std::uint32_t w = n * 0x9E3779B9u + static_cast<std::uint32_t>(key);
  w ^= w >> 16;
  w *= 0x7FEB352Du;
  w ^= static_cast<std::uint32_t>(key >> 32);
  w ^= w >> 15;
  w *= 0x846CA68Bu;
  w ^= w >> 16;
  const std::uint32_t draw = column % 2 == 0 ? w & 0xFFFFu : w >> 16;
  return draw >= static_cast<std::uint32_t>(std::lround(p * 65536.0));
}

TEST(Dropout, EveryImplementationDrawsTheSpecifiedMask) {
  const Batch batch({3, 70, 1});
  const Dropout dropout{.p = 0.1f, .seed = 42, .step = 7, .site = dropout_site(3, 2)};
  for (const auto& implementation : implementations("dropout", CpuFeatures::detect())) {
    if (!implementation.reason.empty()) continue;
    Runtime runtime("dropout=" + implementation.implementation);
    for (const std::size_t columns : {1, 5, 16, 33, 47, 384}) {
      const std::vector<float> ones(batch.rows() * columns, 1.0f);
      std::vector<float> y(ones.size());
      dropout_forward(runtime.context(), batch.sequences(), columns, dropout, ones.data(),
                      y.data());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < batch.sequences().count(); ++i) {
        for (std::uint32_t row = 0; row < batch.sequences().rows_of(i); ++row) {
          for (std::uint32_t c = 0; c < columns; ++c) {
            const float want = keeps_by_hand(42, 7, 3 * 1024 + 2, 1000 + i, 0.1f, row, c)
                                   ? 1.0f / (1.0f - 0.1f)
                                   : 0.0f;
            wrong += y[(batch.sequences().row_begin[i] + row) * columns + c] != want;
          }
        }
      }
      EXPECT_EQ(wrong, 0u) << implementation.implementation << " columns " << columns;
    }
  }
}

template <class T>
void compare_sums(const std::string& name, std::size_t columns) {
  Runtime runtime("dropout=" + name);
  const Batch batch({3, 70, 1});
  const Dropout dropout{.p = 0.1f, .seed = 42, .step = 7, .site = 9};
  const auto x = random_values<T>(batch.rows() * columns, 1);
  const auto residual = random_values<float>(x.size(), 2);
  std::vector<T> dropped(x.size()), grad(x.size()), want_grad(x.size());
  std::vector<float> sum(x.size());
  const std::vector<T> grad_sum = random_values<T>(x.size(), 3);
  std::vector<float> wide(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) wide[i] = to_float(grad_sum[i]);
  dropout_forward(runtime.context(), batch.sequences(), columns, dropout, x.data(), dropped.data());
  dropout_add_forward(runtime.context(), batch.sequences(), columns, dropout, x.data(),
                      residual.data(), sum.data());
  // A dropped value in T is rounded once more than the sum.
  const double rounding = std::is_same_v<T, float> ? kFloatEpsilon : 0x1p-8;
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(sum[i], to_float(dropped[i]) + residual[i], 4.0 * rounding) << name << " " << i;
  dropout_add_backward(runtime.context(), batch.sequences(), columns, dropout, wide.data(),
                       grad.data());
  dropout_forward(runtime.context(), batch.sequences(), columns, dropout, grad_sum.data(),
                  want_grad.data());
  EXPECT_TRUE(same_bits(grad, want_grad)) << name << " columns " << columns;
}

TEST(DropoutAdd, DropsAndAddsTheResidual) {
  for (const std::string& name : running_implementations("dropout")) {
    for (const std::size_t columns : {1, 16, 47}) {
      compare_sums<float>(name, columns);
      compare_sums<bfloat16>(name, columns);
    }
  }
}

TEST(Dropout, KeepsTheRightShare) {
  Runtime runtime;
  const Batch batch({512, 512});
  constexpr std::size_t columns = 1024;
  for (const float p : {0.05f, 0.1f, 0.5f}) {
    const Dropout dropout{.p = p, .seed = 1, .step = 1, .site = 1};
    const std::vector<float> ones(batch.rows() * columns, 1.0f);
    std::vector<float> y(ones.size());
    dropout_forward(runtime.context(), batch.sequences(), columns, dropout, ones.data(), y.data());
    double kept = 0;
    for (const float e : y) kept += e != 0.0f;
    const double share = kept / static_cast<double>(y.size());
    const double sigma = std::sqrt(p * (1.0 - p) / static_cast<double>(y.size()));
    // The threshold is rounded to 1/65536.
    EXPECT_NEAR(share, 1.0 - p, 4.0 * sigma + 1.0 / 131072.0) << p;
  }
}

// Masks of different sites, steps, samples and rows must look unrelated: two of them agree in about
// p^2 + (1-p)^2 of the elements.
TEST(Dropout, MasksOfDifferentKeysAreUnrelated) {
  const auto mask = [](std::uint64_t seed, std::uint64_t step, std::uint32_t site,
                       std::uint64_t sample) {
    return dropout_mask({.p = 0.5f, .seed = seed, .step = step, .site = site}, sample);
  };
  const DropoutMask base = mask(1, 1, 1, 1);
  const DropoutMask others[] = {mask(2, 1, 1, 1), mask(1, 2, 1, 1), mask(1, 1, 2, 1),
                                mask(1, 1, 1, 2)};
  constexpr std::uint32_t kRows = 256, kColumns = 256;
  const auto agreement = [&](const DropoutMask& other, std::uint32_t shift) {
    int same = 0;
    for (std::uint32_t r = 0; r < kRows; ++r) {
      for (std::uint32_t c = 0; c < kColumns; ++c)
        same += dropout_keeps(base, r, c) == dropout_keeps(other, r + shift, c);
    }
    return same / static_cast<double>(kRows * kColumns);
  };
  const double bound = 5.0 * 0.5 / std::sqrt(static_cast<double>(kRows * kColumns));
  for (const DropoutMask& other : others) EXPECT_NEAR(agreement(other, 0), 0.5, bound);
  for (const std::uint32_t shift : {1u, 2u, 128u}) EXPECT_NEAR(agreement(base, shift), 0.5, bound);
}

// The elements of a mask as numbers of mean 0 and variance 1 when the mask is what it should be.
std::vector<float> standardised(const DropoutMask& mask, double p, std::uint32_t rows,
                                std::uint32_t columns) {
  const auto kept = static_cast<float>(std::sqrt(p / (1.0 - p)));
  const auto dropped = static_cast<float>(-std::sqrt((1.0 - p) / p));
  std::vector<float> x;
  x.reserve(std::size_t{rows} * columns);
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t c = 0; c < columns; ++c)
      x.push_back(dropout_keeps(mask, r, c) ? kept : dropped);
  }
  return x;
}

// The correlation of x[i] with y[i + lag] in standard deviations of what chance gives.
double correlation(const std::vector<float>& x, const std::vector<float>& y, std::size_t lag) {
  const std::size_t count = x.size() - lag;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * y[i + lag];
  return sum / std::sqrt(static_cast<double>(count));
}

constexpr std::uint32_t kStatisticsRows = 512;
constexpr std::uint32_t kStatisticsColumns = 1024;

TEST(Dropout, MeanAndVarianceOfBlocksAreThoseOfIndependentDraws) {
  constexpr double kP = 6554.0 / 65536.0;  // 0.1 as the threshold rounds it
  constexpr std::size_t kBlock = 256;
  for (std::uint32_t stream = 0; stream < 8; ++stream) {
    const DropoutMask mask = dropout_mask({.p = 0.1f, .seed = 42, .step = stream, .site = 3}, 5);
    const auto x = standardised(mask, kP, kStatisticsRows, kStatisticsColumns);
    const std::size_t blocks = x.size() / kBlock;
    double mean = 0;
    double chi_squared = 0;  // statistic of the block sums, `blocks` degrees of freedom
    for (std::size_t b = 0; b < blocks; ++b) {
      double sum = 0;
      for (std::size_t i = 0; i < kBlock; ++i) sum += x[b * kBlock + i];
      mean += sum;
      chi_squared += sum * sum / kBlock;
    }
    EXPECT_LT(std::abs(mean) / std::sqrt(static_cast<double>(x.size())), 5.0) << stream;
    const auto degrees = static_cast<double>(blocks);
    EXPECT_LT(std::abs(chi_squared - degrees) / std::sqrt(2.0 * degrees), 5.0) << stream;
  }
}

// Neighbours that share a word, neighbouring words, vectors and rows.
TEST(Dropout, ElementsOfOneMaskAreNotCorrelated) {
  constexpr double kP = 6554.0 / 65536.0;
  const DropoutMask mask = dropout_mask({.p = 0.1f, .seed = 42, .step = 1, .site = 3}, 5);
  const auto x = standardised(mask, kP, kStatisticsRows, kStatisticsColumns);
  for (const std::size_t lag :
       {1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 64, 384, 512, 1023, 1024, 1025, 2048, 16384, 32768}) {
    EXPECT_LT(std::abs(correlation(x, x, lag)), 5.0) << "lag " << lag;
  }
}

// Consecutive steps, sites and samples are what a training run asks for: all pairs of 48 streams.
TEST(Dropout, MasksOfConsecutiveStreamsAreNotCorrelated) {
  constexpr double kP = 6554.0 / 65536.0;
  std::vector<std::vector<float>> streams;
  for (std::uint32_t i = 0; i < 16; ++i) {
    for (const DropoutMask& mask :
         {dropout_mask({.p = 0.1f, .seed = 42, .step = i, .site = 1}, 0),
          dropout_mask({.p = 0.1f, .seed = 42, .step = 100, .site = i}, 0),
          dropout_mask({.p = 0.1f, .seed = 42, .step = 200, .site = 1}, i)}) {
      streams.push_back(standardised(mask, kP, 64, 256));
    }
  }
  for (std::size_t a = 0; a < streams.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b)
      EXPECT_LT(std::abs(correlation(streams[a], streams[b], 0)), 5.5) << a << " and " << b;
  }
}

TEST(Dropout, ZeroProbabilityCopiesAndBadOnesAreRefused) {
  Runtime runtime;
  const Batch batch({4});
  const auto x = random_values<bfloat16>(4 * 20, 1);
  std::vector<bfloat16> y(x.size());
  dropout_forward(runtime.context(), batch.sequences(), 20, Dropout{}, x.data(), y.data());
  EXPECT_TRUE(same_bits(x, y));
  for (const float p : {-0.1f, 1.0f, kNan}) {
    EXPECT_THROW(
        dropout_forward(runtime.context(), batch.sequences(), 20, {.p = p}, x.data(), y.data()),
        InvalidArgument);
  }
  const std::vector<std::uint32_t> row_begin = {0, 4};
  const std::vector<std::uint32_t> keys = {4};
  EXPECT_THROW(dropout_forward(runtime.context(), {row_begin, keys, {}}, 20, {.p = 0.1f}, x.data(),
                               y.data()),
               InvalidArgument);
}

}  // namespace
}  // namespace tandem::kernels::testing
