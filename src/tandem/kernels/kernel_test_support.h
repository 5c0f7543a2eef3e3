// What the tests of this library share: random operands, contexts with a forced implementation,
// batches of packed sequences, and the comparison of a fast version with its reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels::testing {

// A pool, a kernel set and scratch memory for one test.
class Runtime {
 public:
  explicit Runtime(std::string_view overrides = {}, int num_threads = 2,
                   Precision precision = Precision::kBfloat16)
      : threads_(num_threads),
        kernels_(select_kernels(CpuFeatures::detect(), overrides, precision)),
        scratch_(num_threads) {}
  Context context() { return {threads_, kernels_, scratch_}; }

 private:
  ThreadPool threads_;
  KernelSet kernels_;
  Scratch scratch_;
};

// Why this machine cannot run an implementation of an operation; empty: it can.
inline std::string obstacle(const std::string& operation, std::string_view implementation) {
  for (const auto& row : implementations(operation, CpuFeatures::detect()))
    if (row.implementation == implementation) return row.reason;
  return fmt::format("this family of processors has no {}={}", operation, implementation);
}

// The implementation in plain C++ that computes the same bits. Vectors of 8 lanes have those of 16.
inline std::string emulation_of(const std::string& implementation) {
  return (implementation == "avx2" ? "avx512" : implementation) + "_emulated";
}

template <class T>
constexpr Precision kPrecisionOf =
    std::is_same_v<T, float> ? Precision::kFloat32 : Precision::kBfloat16;

// The implementations of an operation that this CPU runs in `precision`, emulations included.
inline std::vector<std::string> running_implementations(
    std::string_view operation, Precision precision = Precision::kBfloat16) {
  std::vector<std::string> names;
  for (const auto& row : implementations(operation, CpuFeatures::detect(), precision)) {
    if (row.reason.empty()) names.push_back(row.implementation);
  }
  return names;
}

// The same, the reference excepted.
inline std::vector<std::string> fast_implementations(std::string_view operation,
                                                     Precision precision = Precision::kBfloat16) {
  std::vector<std::string> names = running_implementations(operation, precision);
  std::erase(names, "reference");
  return names;
}

// Uniform in [-1, 1), the same for the same seed.
template <class T = float>
std::vector<T> random_values(std::size_t count, std::uint64_t seed) {
  std::vector<T> x(count);
  for (T& e : x) {
    seed = splitmix64(seed);
    e = to_storage<T>(static_cast<float>(seed >> 40) / 8388608.0f - 1.0f);
  }
  return x;
}

// Packed sequences of the given lengths; each of the last `pads` rows of every sequence longer than
// that is a pad row.
class Batch {
 public:
  explicit Batch(const std::vector<std::uint32_t>& lengths, std::uint32_t pads = 0) {
    row_begin_.push_back(0);
    for (const std::uint32_t length : lengths) {
      row_begin_.push_back(row_begin_.back() + length);
      key_count_.push_back(length > pads ? length - pads : length);
      sample_.push_back(1000 + sample_.size());
    }
  }
  Sequences sequences() const { return {row_begin_, key_count_, sample_}; }
  std::size_t rows() const { return row_begin_.back(); }

 private:
  std::vector<std::uint32_t> row_begin_, key_count_;
  std::vector<std::uint64_t> sample_;
};

inline constexpr double kFloatEpsilon =
    5.9604644775390625e-8;  // 2^-24: half a unit in the last place of 1
// Two values on either side of a rounding boundary are stored one unit in the last place apart.
template <class T>
constexpr double kStorageEpsilon = std::is_same_v<T, float> ? 0x1p-23 : 0x1p-7;

// |got - want| <= bound(i) + rounding of the storage type, for every element; reports the worst
// one.
template <class T, class Bound>
void expect_near(const std::vector<T>& got, const std::vector<T>& want, Bound bound,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double g = to_float(got[i]);
    const double w = to_float(want[i]);
    if (std::isnan(g) && std::isnan(w)) continue;
    const double allowed = bound(i) + kStorageEpsilon<T> * std::abs(w);
    const double excess = g == w ? 0 : std::abs(g - w) / allowed;
    if (excess > worst || std::isnan(excess)) {
      worst = excess;
      at = i;
      if (std::isnan(excess)) break;
    }
  }
  EXPECT_LE(worst, 1.0) << what << ": element " << at << " is " << to_float(got[at])
                        << ", the reference says " << to_float(want[at]);
}

template <class T>
double largest_magnitude(const std::vector<T>& x) {
  double most = 0;
  for (const T e : x) most = std::max(most, std::abs(static_cast<double>(to_float(e))));
  return most;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Compares grad with central differences of loss() in some elements of x (which it changes and
// restores). The step balances the truncation error of a smooth function of magnitude 1 against the
// rounding of f32 outputs summed in f64.
template <class Loss>
void expect_gradient(std::vector<float>& x, const std::vector<float>& grad, Loss loss,
                     const std::string& what) {
  constexpr float kStep = 1.0f / 128.0f;
  const double scale = std::max(largest_magnitude(grad), 1e-3);
  const std::size_t stride = std::max<std::size_t>(1, x.size() / 37);
  for (std::size_t i = 0; i < x.size(); i += stride) {
    const float saved = x[i];
    x[i] = saved + kStep;
    const double above = loss();
    x[i] = saved - kStep;
    const double below = loss();
    x[i] = saved;
    EXPECT_NEAR((above - below) / (2.0 * static_cast<double>(kStep)), static_cast<double>(grad[i]),
                2e-3 * scale)
        << what << " element " << i;
  }
}

inline double weighted_sum(const std::vector<float>& x, const std::vector<float>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(weights[i]);
  return sum;
}

}  // namespace tandem::kernels::testing
