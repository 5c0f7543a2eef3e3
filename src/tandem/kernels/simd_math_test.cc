#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tandem/kernels/kernel_test_support.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The largest error over a sweep of x, in units of the last place of the exact result.
template <class Exact>
double worst_ulp(void (*f)(std::size_t, const float*, float*), float from, float to, Exact exact) {
  constexpr std::size_t kPoints = 2'000'003;
  std::vector<float> x(kPoints);
  std::vector<float> y(kPoints);
  for (std::size_t i = 0; i < kPoints; ++i) {
    x[i] = from + (to - from) * static_cast<float>(i) / static_cast<float>(kPoints - 1);
  }
  f(kPoints, x.data(), y.data());
  double worst = 0;
  for (std::size_t i = 0; i < kPoints; ++i) {
    const double want = exact(static_cast<double>(x[i]));
    const auto rounded = static_cast<float>(std::abs(want));
    const double ulp =
        static_cast<double>(std::nextafter(rounded, kInfinity)) - static_cast<double>(rounded);
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - want) / ulp);
  }
  return worst;
}

void check_math(const MathFunctions& math) {
  const auto exp = [](double x) { return std::exp(x); };
  EXPECT_LE(worst_ulp(math.exp, -87.0f, 88.7f, exp), 2.0);
  EXPECT_LE(worst_ulp(math.exp, -1.0f, 1.0f, exp), 2.0);
  const auto exp2 = [](double x) { return std::exp2(x); };
  EXPECT_LE(worst_ulp(math.exp2, -125.0f, 127.9f, exp2), 2.0);
  EXPECT_LE(worst_ulp(math.exp2, -1.0f, 1.0f, exp2), 2.0);
  EXPECT_LE(worst_ulp(math.erf, -5.0f, 5.0f, [](double x) { return std::erf(x); }), 2.0);
  EXPECT_LE(worst_ulp(math.erf, -1e-3f, 1e-3f, [](double x) { return std::erf(x); }), 2.0);
  const std::vector<float> x = {kNan, kInfinity, -kInfinity, 89.0f, -110.0f, -100.0f, 0.0f};
  std::vector<float> y(x.size());
  math.exp(x.size(), x.data(), y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], kInfinity);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_NEAR(y[5], std::exp(-100.0), 1.5e-45);  // subnormal
  EXPECT_EQ(y[6], 1.0f);
  const std::vector<float> powers = {kNan, -kInfinity, -160.0f, -127.0f, -126.0f, 0.0f, 127.0f};
  math.exp2(powers.size(), powers.data(), y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  for (std::size_t i = 1; i < powers.size(); ++i)
    EXPECT_EQ(y[i], std::exp2(std::max(-126.0f, powers[i]))) << powers[i];
  math.erf(x.size(), x.data(), y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], -1.0f);
}

// The hardware's where this CPU has it, else the emulation.
const MathFunctions& math_of_width_8() {
  return CpuFeatures::of_processor().avx2 ? kMathAvx2 : emulated::kMath;
}
const MathFunctions& math_of_width_16() {
  return CpuFeatures::of_processor().avx512 ? kMathAvx512 : emulated::kMath;
}

TEST(VectorWidths, GiveTheSameExponentials) {
  // Every 4,099th f32, of all signs, exponents and kinds.
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 4099)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  std::vector<float> narrow(x.size()), wide(x.size());
  const auto expect_same = [&](auto function, std::string_view name) {
    (math_of_width_8().*function)(x.size(), x.data(), narrow.data());
    (math_of_width_16().*function)(x.size(), x.data(), wide.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(narrow[i]) && std::isnan(wide[i])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(narrow[i]), std::bit_cast<std::uint32_t>(wide[i]))
          << name << "(" << x[i] << ")";
    }
  };
  expect_same(&MathFunctions::exp, "exp");
  expect_same(&MathFunctions::erf, "erf");
  std::erase_if(x, [](float value) { return value >= 128; });
  expect_same(&MathFunctions::exp2, "exp2");
}

TEST(SimdMath, Avx2IsWithinTwoUlp) { check_math(math_of_width_8()); }

TEST(SimdMath, Avx512IsWithinTwoUlp) { check_math(math_of_width_16()); }

// The worst of |got - exact| / unit(x) over a sweep of [-20, 20] and one of [-1/8, 1/8].
template <class Exact, class Unit>
double worst_in_units(void (*f)(std::size_t, const float*, float*), Exact exact, Unit unit) {
  constexpr std::size_t kPoints = 1'000'001;
  double worst = 0;
  for (const float end : {20.0f, 0.125f}) {
    std::vector<float> x(kPoints);
    std::vector<float> y(kPoints);
    for (std::size_t i = 0; i < kPoints; ++i) {
      x[i] = end * (2 * static_cast<float>(i) / static_cast<float>(kPoints - 1) - 1);
    }
    f(kPoints, x.data(), y.data());
    for (std::size_t i = 0; i < kPoints; ++i) {
      const auto at = static_cast<double>(x[i]);
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) - exact(at)) / unit(at));
    }
  }
  return worst;
}

// A function with |f(x)| <= |x| and its derivative, in f64.
struct ExactActivation {
  double (*value)(double);
  double (*slope)(double);
};

constexpr ExactActivation kExactGelu = {
    [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); },
    [](double x) {
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
             x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
    }};

// 0.5 (1 + tanh u) = 1 / (1 + e^-2u), with the constants as f32 has them.
double gelu_new_argument(double x) {
  return 2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
}
constexpr ExactActivation kExactGeluNew = {
    [](double x) { return x / (1 + std::exp(-gelu_new_argument(x))); },
    [](double x) {
      const double s = 1 / (1 + std::exp(-gelu_new_argument(x)));
      const double rest = 1 / (1 + std::exp(gelu_new_argument(x)));
      return s + x * s * rest * 2 * std::sqrt(2 / std::acos(-1.0)) * (1 + 3 * 0.044715 * x * x);
    }};

constexpr ExactActivation kExactTanh = {[](double x) { return std::tanh(x); },
                                        [](double x) { return 1 - std::tanh(x) * std::tanh(x); }};

constexpr ExactActivation kExactSilu = {[](double x) { return x / (1 + std::exp(-x)); },
                                        [](double x) {
                                          const double s = 1 / (1 + std::exp(-x));
                                          return s + x * s * (1 - s);
                                        }};

// The errors in units of 2^-24, the spacing of f32 below 1: of the value relative to |x|, of the
// derivative, which lies around 1, as they are.
struct ActivationErrors {
  double value, slope;
};

template <const ActivationKernels& kKernels, Activation kActivation>
ActivationErrors activation_errors(const ExactActivation& exact) {
  static constexpr double kUnit = 0x1p-24;
  const auto value = [](std::size_t count, const float* x, float* y) {
    kKernels.f32.forward(kActivation, count, x, y);
  };
  const auto slope = [](std::size_t count, const float* x, float* y) {
    const std::vector<float> ones(count, 1.0f);
    kKernels.f32.backward(kActivation, count, x, ones.data(), y, nullptr);
  };
  return {.value = worst_in_units(value, exact.value,
                                  [](double x) { return kUnit * std::abs(x) + 1e-30; }),
          .slope = worst_in_units(slope, exact.slope, [](double) { return kUnit; })};
}

template <const ActivationKernels& kKernels>
void check_activations() {
  const auto gelu = activation_errors<kKernels, Activation::kGelu>(kExactGelu);
  EXPECT_LE(gelu.value, 1.5);
  EXPECT_LE(gelu.slope, 2.0);
  const auto gelu_new = activation_errors<kKernels, Activation::kGeluNew>(kExactGeluNew);
  EXPECT_LE(gelu_new.value, 2.5);
  EXPECT_LE(gelu_new.slope, 3.5);
  const auto tanh = activation_errors<kKernels, Activation::kTanh>(kExactTanh);
  EXPECT_LE(tanh.value, 2.5);
  EXPECT_LE(tanh.slope, 3.5);
  const auto silu = activation_errors<kKernels, Activation::kSilu>(kExactSilu);
  EXPECT_LE(silu.value, 2.5);
  EXPECT_LE(silu.slope, 3.5);
}

// The worst error of results in bf16 for all finite bf16 x, beyond half a unit of the exact
// result's last place: relative to |x| (value), and as it is (slope).
template <const ActivationKernels& kKernels>
ActivationErrors short_gelu_errors() {
  std::vector<bfloat16> x;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto value = std::bit_cast<bfloat16>(static_cast<std::uint16_t>(bits));
    if (std::isfinite(to_float(value))) x.push_back(value);
  }
  const std::vector<bfloat16> ones(x.size(), to_storage<bfloat16>(1.0f));
  std::vector<bfloat16> y(x.size()), slope(x.size());
  kKernels.bf16.forward(Activation::kGelu, x.size(), x.data(), y.data());
  kKernels.bf16.backward(Activation::kGelu, x.size(), x.data(), ones.data(), slope.data(), nullptr);
  ActivationErrors worst{};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = to_float(x[i]);
    const auto beyond_rounding = [](bfloat16 got, double want) {
      const double half = want == 0 ? 0 : std::ldexp(1.0, std::ilogb(want) - 8);
      return std::max(0.0, std::abs(to_float(got) - want) - half - 1e-38);
    };
    worst.value = std::max(
        worst.value, beyond_rounding(y[i], kExactGelu.value(at)) / std::max(std::abs(at), 1e-30));
    worst.slope = std::max(worst.slope, beyond_rounding(slope[i], kExactGelu.slope(at)));
  }
  return worst;
}

template <const ActivationKernels& kKernels>
void check_short_gelu() {
  const ActivationErrors errors = short_gelu_errors<kKernels>();
  EXPECT_LE(errors.value, 2.5e-5);
  EXPECT_LE(errors.slope, 2.5e-5);
}

TEST(SimdMath, TheGeluOfBf16KeepsItsBounds) {
  check_short_gelu<emulated::kActivation>();
  if (CpuFeatures::of_processor().avx2) check_short_gelu<kActivationAvx2>();
  if (CpuFeatures::of_processor().avx512) check_short_gelu<kActivationAvx512>();
}

TEST(SimdMath, ActivationsKeepTheirBounds) {
  check_activations<emulated::kActivation>();
  if (CpuFeatures::of_processor().avx2) check_activations<kActivationAvx2>();
  if (CpuFeatures::of_processor().avx512) check_activations<kActivationAvx512>();
}

}  // namespace
}  // namespace tandem::kernels::testing
