#include "tandem/kernels/int8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"
#include "tandem/kernels/kernel_test_support.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsNan;
using ::testing::ThrowsMessage;

// A layer with weights all over [-128, 127] and scales that differ.
struct Layer {
  Layer(std::size_t out, std::size_t in) : N(out), K(in), weight(out * in), bias(out) {
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] = static_cast<std::int8_t>(splitmix64(i) & 255u);
    }
    bias = random_values(N, 3);
    for (std::size_t n = 0; n < N; ++n) scale.push_back(0.001f * static_cast<float>(n % 7 + 1));
  }
  Int8Weight pack(const Context& ctx) const { return Int8Weight::pack(ctx, N, K, weight, scale); }
  // The weights that the integers stand for.
  std::vector<float> values() const {
    std::vector<float> w(weight.size());
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = scale[i / K] * weight[i];
    return w;
  }

  std::size_t N, K;
  std::vector<std::int8_t> weight;
  std::vector<float> bias;
  std::vector<float> scale;
};

using Range = std::optional<Int8Range>;  // none: dynamic

template <class T>
std::vector<T> run(const Context& ctx, const Int8Weight& weight, const Range& range,
                   const std::vector<T>& x, const float* bias) {
  const std::size_t rows = x.size() / weight.in_features();
  std::vector<T> y(rows * weight.out_features(), to_storage<T>(-7.0f));
  if (range) {
    int8_linear_forward(ctx, rows, weight, *range, x.data(), bias, y.data());
  } else {
    int8_linear_forward_dynamic(ctx, rows, weight, x.data(), bias, y.data());
  }
  return y;
}

// The formula of the header, element by element, from the integers that were packed.
std::vector<float> by_formula(const Layer& layer, const Range& range, const std::vector<float>& x,
                              const float* bias) {
  std::vector<float> y;
  for (std::size_t r = 0; r < x.size() / layer.K; ++r) {
    const float* row = x.data() + r * layer.K;
    const auto [min, max] = std::minmax_element(row, row + layer.K);
    const Int8Range own = range ? *range : int8_range(*min, *max);
    for (std::size_t n = 0; n < layer.N; ++n) {
      std::int64_t sum = 0;
      for (std::size_t k = 0; k < layer.K; ++k) {
        const float rounded = std::nearbyint(row[k] / own.scale) + own.zero_point;
        const auto q = static_cast<std::int64_t>(std::clamp(rounded, 0.0f, 255.0f));
        sum += (q - own.zero_point) * layer.weight[n * layer.K + k];
      }
      const float product = static_cast<float>(sum) * (own.scale * layer.scale[n]);
      y.push_back(bias == nullptr ? product : product + bias[n]);
    }
  }
  return y;
}

// Rows, output features, input features: single elements, no multiple of a group, a panel, a vector
// or a block of rows, and more than one tile.
struct Shape {
  std::size_t M, N, K;
};
constexpr Shape kShapes[] = {{1, 1, 1},   {3, 2, 5},     {7, 17, 63},  {8, 48, 64},
                             {9, 50, 66}, {19, 33, 131}, {5, 211, 30}, {131, 193, 24}};
const Range kRanges[] = {Int8Range{0.01f, 121}, Int8Range{0.003f, 0}, std::nullopt};

TEST(Int8, ReferenceIsTheFormula) {
  Runtime runtime("int8=reference");
  const Context ctx = runtime.context();
  for (const auto& [M, N, K] : kShapes) {
    const Layer layer(N, K);
    const Int8Weight weight = layer.pack(ctx);
    const std::vector<float> x = random_values(M * K, 1);
    for (const Range& range : kRanges) {
      for (const float* bias : {static_cast<const float*>(nullptr), layer.bias.data()}) {
        EXPECT_TRUE(same_bits(run(ctx, weight, range, x, bias), by_formula(layer, range, x, bias)))
            << M << " rows, " << N << " x " << K;
      }
    }
  }
}

// The bound of the header, against the f32 layer: with weights that have errors of their own.
TEST(Int8, ErrorIsWithinTheBoundOfTheScheme) {
  Runtime runtime;
  const Context ctx = runtime.context();
  constexpr std::size_t kRows = 13, N = 29, K = 70;
  const std::vector<float> x = random_values(kRows * K, 1);
  const std::vector<float> w = random_values(N * K, 2);
  Layer layer(N, K);
  for (std::size_t n = 0; n < N; ++n) {
    layer.scale[n] =
        static_cast<float>(largest_magnitude(std::vector<float>(
            w.begin() + static_cast<long>(n * K), w.begin() + static_cast<long>((n + 1) * K)))) /
        127;
    for (std::size_t k = 0; k < K; ++k) {
      layer.weight[n * K + k] =
          static_cast<std::int8_t>(std::nearbyint(w[n * K + k] / layer.scale[n]));
    }
  }
  const Int8Range range = int8_range(-1, 1);
  const std::vector<float> y = run(ctx, layer.pack(ctx), range, x, layer.bias.data());
  double nearest_miss = 0;
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t n = 0; n < N; ++n) {
      double exact = layer.bias[n], bound = 0, magnitude = std::abs(exact);
      for (std::size_t k = 0; k < K; ++k) {
        const double xk = x[r * K + k], wk = w[n * K + k];
        exact += xk * wk;
        magnitude += std::abs(xk * wk);
        bound += range.scale / 2.0 * std::abs(wk) +
                 layer.scale[n] / 2.0 * (std::abs(xk) + range.scale / 2.0);
      }
      const double error = std::abs(y[r * N + n] - exact);
      EXPECT_LE(error, bound + 4 * kFloatEpsilon * magnitude);
      nearest_miss = std::max(nearest_miss, error / bound);
    }
  }
  EXPECT_GT(nearest_miss, 0.01);  // a bound that means something
}

// The reference, and what stands before it in the table.
std::vector<std::string> all_implementations() {
  std::vector<std::string> names = fast_implementations("int8");
  names.emplace_back("reference");
  return names;
}

// Uniform values, among them many that lie halfway between two integers of the range.
std::vector<float> values_with_ties(std::size_t count, const Range& range) {
  std::vector<float> x = random_values(count, 1);
  const float half = (range ? range->scale : 0.02f) / 2;
  for (std::size_t i = 0; i < count; i += 3) x[i] = half * static_cast<float>(i % 1001) - 0.7f;
  for (std::size_t i = 1; i < count; i += 3) x[i] = half * (static_cast<float>(i % 601) - 300.0f);
  return x;
}

std::vector<bfloat16> rounded(const std::vector<float>& x) {
  std::vector<bfloat16> to(x.size());
  std::transform(x.begin(), x.end(), to.begin(), to_bfloat16);
  return to;
}

std::vector<float> widened(const std::vector<bfloat16>& x) {
  std::vector<float> to(x.size());
  std::transform(x.begin(), x.end(), to.begin(), [](bfloat16 value) { return to_float(value); });
  return to;
}

TEST(Int8, EveryImplementationGivesTheBitsOfTheReference) {
  Runtime plain("int8=reference");
  for (const std::string& name : fast_implementations("int8")) {
    Runtime runtime("int8=" + name);
    for (const auto& [M, N, K] : kShapes) {
      const Layer layer(N, K);
      const Int8Weight weight = layer.pack(plain.context());
      for (const Range& range : kRanges) {
        const std::vector<float> x = values_with_ties(M * K, range);
        for (const float* bias : {static_cast<const float*>(nullptr), layer.bias.data()}) {
          EXPECT_TRUE(same_bits(run(runtime.context(), weight, range, x, bias),
                                run(plain.context(), weight, range, x, bias)))
              << name << ": " << M << " rows, " << N << " x " << K;
        }
      }
    }
  }
}

// bf16 rows are widened, which is exact, and results rounded.
TEST(Int8, Bf16RowsGiveTheRoundedResultsOfTheirValues) {
  for (const std::string& name : all_implementations()) {
    Runtime runtime("int8=" + name);
    const Context ctx = runtime.context();
    for (const auto& [M, N, K] : kShapes) {
      const Layer layer(N, K);
      const Int8Weight weight = layer.pack(ctx);
      for (const Range& range : kRanges) {
        const std::vector<bfloat16> x = rounded(values_with_ties(M * K, range));
        for (const float* bias : {static_cast<const float*>(nullptr), layer.bias.data()}) {
          EXPECT_EQ(run(ctx, weight, range, x, bias),
                    rounded(run(ctx, weight, range, widened(x), bias)))
              << name << ": " << M << " rows, " << N << " x " << K;
        }
      }
    }
  }
}

TEST(Int8, BitsDoNotDependOnThreads) {
  const Layer layer(211, 130);
  for (const std::string& name : all_implementations()) {
    for (const Range& range : kRanges) {
      const std::vector<float> x = values_with_ties(301 * layer.K, range);
      std::vector<std::vector<float>> results;
      for (const int threads : {1, 2}) {
        Runtime runtime("int8=" + name, threads);
        const Context ctx = runtime.context();
        results.push_back(run(ctx, layer.pack(ctx), range, x, layer.bias.data()));
      }
      EXPECT_TRUE(same_bits(results[0], results[1])) << name;
    }
  }
}

// Results that are written past the caches, in tiles that are larger than those of few rows; the
// last columns are less than two panels.
template <class T>
void expect_bits_of_the_reference(std::size_t M, std::size_t N) {
  constexpr std::size_t K = 70;
  Runtime plain("int8=reference");
  const Layer layer(N, K);
  const Int8Weight weight = layer.pack(plain.context());
  std::vector<T> x(M * K);
  std::ranges::transform(random_values(M * K, 1), x.begin(), to_storage<T>);
  const std::vector<T> want = run(plain.context(), weight, std::nullopt, x, layer.bias.data());
  for (const std::string& name : fast_implementations("int8")) {
    Runtime runtime("int8=" + name);
    Buffer y(M * N * sizeof(T));
    int8_linear_forward_dynamic(runtime.context(), M, weight, x.data(), layer.bias.data(),
                                y.as<T>().data());
    EXPECT_EQ(std::memcmp(y.as<T>().data(), want.data(), want.size() * sizeof(T)), 0) << name;
  }
}

TEST(Int8, LargeResultsHaveTheBitsOfTheReference) {
  expect_bits_of_the_reference<float>(1101, 272);
  expect_bits_of_the_reference<bfloat16>(1101, 544);
}

// The same row alone and among others: what a sequence gets does not depend on its batch.
TEST(Int8, BitsDoNotDependOnTheOtherRows) {
  const Layer layer(50, 67);
  for (const std::string& name : all_implementations()) {
    Runtime runtime("int8=" + name);
    const Context ctx = runtime.context();
    const Int8Weight weight = layer.pack(ctx);
    for (const Range& range : kRanges) {
      const std::vector<float> x = random_values(17 * layer.K, 1);
      const std::vector<float> all = run(ctx, weight, range, x, layer.bias.data());
      for (std::size_t rows = 1; rows < 17; ++rows) {
        const std::vector<float> last(x.end() - static_cast<long>(rows * layer.K), x.end());
        const std::vector<float> alone = run(ctx, weight, range, last, layer.bias.data());
        EXPECT_TRUE(
            std::equal(alone.begin(), alone.end(), all.end() - static_cast<long>(50 * rows)))
            << name << ": " << rows;
      }
    }
  }
}

TEST(Int8, ANanInARowMakesTheRowNan) {
  constexpr std::size_t K = 70;
  const Layer layer(5, K);
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::string& name : all_implementations()) {
    Runtime runtime("int8=" + name);
    const Context ctx = runtime.context();
    const Int8Weight weight = layer.pack(ctx);
    for (const Range& range : kRanges) {
      for (const float bad : {std::nanf(""), inf, -inf}) {
        if (range && !std::isnan(bad)) continue;  // clamped
        for (const std::size_t at : {0, 68}) {
          std::vector<float> x = random_values(3 * K, 1);
          const std::vector<float> good = run(ctx, weight, range, x, layer.bias.data());
          x[K + at] = bad;
          const std::vector<float> y = run(ctx, weight, range, x, layer.bias.data());
          EXPECT_TRUE(std::equal(y.begin(), y.begin() + 5, good.begin())) << name;
          EXPECT_THAT(std::vector<float>(y.begin() + 5, y.begin() + 10), Each(IsNan())) << name;
          EXPECT_TRUE(std::equal(y.begin() + 10, y.end(), good.begin() + 10)) << name;
        }
      }
    }
  }
}

TEST(Int8, ClampsWhatIsOutsideAStaticRange) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0, 77.5f, 1e30f, inf, -50, -1e30f, -inf, 0.25f, 0.75f, -0.25f};
  const std::vector<float> want = {0, 77.5f, 77.5f, 77.5f, -50, -50, -50, 0, 1, 0};
  // One output feature per element of x, which passes that element.
  const std::size_t K = x.size();
  std::vector<std::int8_t> identity(K * K);
  for (std::size_t k = 0; k < K; ++k) identity[k * K + k] = 1;
  const std::vector<float> scale(K, 1.0f);
  for (const std::string& name : all_implementations()) {
    Runtime runtime("int8=" + name);
    const Context ctx = runtime.context();
    const Int8Weight weight = Int8Weight::pack(ctx, K, K, identity, scale);
    EXPECT_EQ(run(ctx, weight, Int8Range{0.5f, 100}, x, nullptr), want) << name;
  }
}

// The largest sums that there are.
TEST(Int8, SumsOfTheLongestRowsAreExact) {
  constexpr std::size_t K = Int8Weight::kMaxInFeatures;
  for (const std::string& name : all_implementations()) {
    Runtime runtime("int8=" + name);
    const Context ctx = runtime.context();
    for (const int w : {-128, 127}) {
      const std::vector<std::int8_t> weight(K, static_cast<std::int8_t>(w));
      const std::vector<float> scale = {1};
      const Int8Weight packed = Int8Weight::pack(ctx, 1, K, weight, scale);
      for (const std::uint8_t zero_point : {0, 255}) {
        const std::vector<float> x(5 * K, zero_point == 0 ? 1e9f : -1e9f);
        const float want = static_cast<float>((zero_point == 0 ? 255 : -255) * w) * 65536.0f;
        EXPECT_THAT(run(ctx, packed, Int8Range{1, zero_point}, x, nullptr), Each(want)) << name;
      }
    }
  }
}

// Four products of u8 and s8 and a sum that may wrap; 127 · 255 · 4 would saturate in s16.
TEST(EmulatedVpdpbusd, IsItsDefinition) {
  const std::uint32_t a[] = {0xFFFFFFFFu, 0xFFFFFFFFu, 0x04030201u, 0x000000FFu};
  const std::uint32_t b[] = {0x7F7F7F7Fu, 0x80808080u, 0xFF01FE02u, 0x00000001u};
  std::int32_t sums[] = {5, 0, 100, std::numeric_limits<std::int32_t>::max()};
  emulated::byte_dots(4, a, b, sums);
  EXPECT_EQ(sums[0], 4 * 255 * 127 + 5);
  EXPECT_EQ(sums[1], 4 * 255 * -128);
  EXPECT_EQ(sums[2], 100 + 1 * 2 + 2 * -2 + 3 * 1 + 4 * -1);
  EXPECT_EQ(sums[3], std::numeric_limits<std::int32_t>::min() + 254);
}

TEST(EmulatedVpdpbusd, EqualsTheHardware) {
#if defined(__x86_64__)
  if (!CpuFeatures::of_processor().avx512_vnni) GTEST_SKIP() << "this CPU has no AVX512_VNNI";
  constexpr std::size_t kCount = 160'000;
  std::vector<std::uint32_t> a(kCount), b(kCount);
  std::vector<std::int32_t> hardware(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<std::uint32_t>(splitmix64(3 * i));
    b[i] = static_cast<std::uint32_t>(splitmix64(3 * i + 1));
    hardware[i] = static_cast<std::int32_t>(splitmix64(3 * i + 2));
  }
  std::vector<std::int32_t> reference_run = hardware;
  byte_dots_avx512vnni(kCount, a.data(), b.data(), hardware.data());
  emulated::byte_dots(kCount, a.data(), b.data(), reference_run.data());
  EXPECT_EQ(hardware, reference_run);
#else
  GTEST_SKIP() << "not an x86-64 CPU";
#endif
}

TEST(Int8Range, HoldsZeroAndTheLimits) {
  EXPECT_EQ(int8_range(0, 255), (Int8Range{1, 0}));
  EXPECT_EQ(int8_range(-127, 128), (Int8Range{1, 127}));
  EXPECT_EQ(int8_range(-255, -3), (Int8Range{1, 255}));
  EXPECT_EQ(int8_range(51, 510), (Int8Range{2, 0}));
  EXPECT_EQ(int8_range(0, 0), (Int8Range{1, 0}));
  EXPECT_EQ(int8_range(-1e-45f, 1e-45f), (Int8Range{1, 0}));  // smaller than any scale
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto& limits : {std::pair{std::nanf(""), 1.0f},
                             {0.0f, std::nanf("")},
                             {0.0f, inf},
                             {-inf, 0.0f},
                             {-3e38f, 3e38f}}) {
    EXPECT_THAT([&] { int8_range(limits.first, limits.second); },
                ThrowsMessage<InvalidArgument>(HasSubstr("expected finite limits")));
  }
}

TEST(Int8Weight, UnpacksWhatWasPacked) {
  Runtime runtime;
  for (const auto& [M, N, K] : kShapes) {
    const Layer layer(N, K);
    const Int8Weight weight = layer.pack(runtime.context());
    EXPECT_EQ(weight.unpack(), layer.weight);
    EXPECT_TRUE(std::equal(weight.scale().begin(), weight.scale().end(), layer.scale.begin(),
                           layer.scale.end()));
    EXPECT_EQ(weight.out_features(), N);
    EXPECT_EQ(weight.in_features(), K);
    EXPECT_GE(weight.bytes(), N * (K + 8));
  }
}

TEST(Int8Weight, RefusesWhatDoesNotFit) {
  Runtime runtime;
  const Context ctx = runtime.context();
  const auto pack = [&](std::size_t N, std::size_t K, std::size_t weights,
                        const std::vector<float>& scale) {
    const std::vector<std::int8_t> weight(weights, 1);
    return [=] { Int8Weight::pack(ctx, N, K, weight, scale); };
  };
  EXPECT_THAT(pack(2, 3, 5, {1, 1}), ThrowsMessage<InvalidArgument>(HasSubstr(
                                         "2 x 3 comes with 5 elements and 2 scales; expected 6")));
  EXPECT_THAT(pack(2, 3, 6, {1}), ThrowsMessage<InvalidArgument>(HasSubstr("1 scales")));
  EXPECT_THAT(pack(0, 3, 0, {}), ThrowsMessage<InvalidArgument>(HasSubstr("0 x 3")));
  EXPECT_THAT(pack(1, 65537, 65537, {1}),
              ThrowsMessage<InvalidArgument>(HasSubstr("1 to 65536 input features")));
  for (const float scale : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(pack(2, 1, 2, {1, scale}),
                ThrowsMessage<InvalidArgument>(HasSubstr("scale of output feature 1 is")));
    EXPECT_THAT(
        [&] {
          run<float>(ctx, Layer(1, 1).pack(ctx), Int8Range{scale, 0}, {1}, nullptr);
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("an int8 range with the scale")));
  }
  EXPECT_THAT(
      [&] { int8_linear_forward_dynamic<float>(ctx, 0, Int8Weight(), nullptr, nullptr, nullptr); },
      ThrowsMessage<InvalidArgument>(HasSubstr("empty")));
}

}  // namespace
}  // namespace tandem::kernels::testing
