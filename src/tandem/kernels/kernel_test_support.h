// Shared by the tests of this library: random operands, contexts with a forced implementation,
// batches of packed sequences, and the comparison of a fast version with its reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulated_cpu/emulated_kernels.h"
#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels::testing {

// The group that "amx_emulated" names, and so on; null for other names.
inline const KernelGroup* emulated_group(std::string_view name) {
  const MachineKernels& kernels = emulated::emulated_kernels();
  if (name == "avx512_emulated") return &kernels.avx512;
  if (name == "avx512bf16_emulated") return &kernels.avx512bf16;
  if (name == "avx512vnni_emulated") return &kernels.avx512vnni;
  if (name == "amx_emulated") return &kernels.amx;
  return nullptr;
}

// Installs the group's implementation of an operation in the set. Returns whether it has any.
inline bool install(const KernelGroup& group, std::string_view operation, KernelSet& set) {
  const auto put = [&](std::string_view name, auto* from, auto*& to) {
    if (name != operation || from == nullptr) return false;
    to = from;
    return true;
  };
  return put("gemm", group.gemm, set.gemm) || put("attention", group.attention, set.attention) ||
         put("rotary", group.rotary, set.rotary) ||
         put("layer_norm", group.layer_norm, set.layer_norm) ||
         put("activation", group.activation, set.activation) ||
         put("dropout", group.dropout, set.dropout) ||
         put("optimizer", group.optimizer, set.optimizer) ||
         put("reduce", group.reduce, set.reduce) || put("int8", group.int8, set.int8);
}

// As select_kernels(), for this CPU; `overrides` may also name emulations: "gemm=amx_emulated".
inline KernelSet select_with_emulations(std::string_view overrides, Precision precision) {
  std::string rest;
  std::vector<std::pair<std::string, const KernelGroup*>> emulations;
  while (!overrides.empty()) {
    const std::string item(overrides.substr(0, overrides.find(',')));
    overrides.remove_prefix(std::min(overrides.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    const std::string name = equals == item.npos ? "" : item.substr(equals + 1);
    if (const KernelGroup* group = emulated_group(name)) {
      emulations.emplace_back(item.substr(0, equals), group);
    } else {
      rest += (rest.empty() ? "" : ",") + item;
    }
  }
  KernelSet set = select_kernels(CpuFeatures::detect(), rest, precision);
  for (const auto& [operation, group] : emulations)
    EXPECT_TRUE(install(*group, operation, set)) << operation;
  return set;
}

// A pool, a kernel set and scratch memory for one test.
class Runtime {
 public:
  explicit Runtime(std::string_view overrides = {}, int num_threads = 2,
                   Precision precision = Precision::kBfloat16)
      : threads_(num_threads),
        kernels_(select_with_emulations(overrides, precision)),
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

// The implementations of an operation that this CPU runs in `precision`, and the emulations.
inline std::vector<std::string> running_implementations(
    std::string_view operation, Precision precision = Precision::kBfloat16) {
  std::vector<std::string> names;
  for (const auto& row : implementations(operation, CpuFeatures::detect(), precision)) {
    if (row.reason.empty()) names.push_back(row.implementation);
  }
  KernelSet set;
  for (const char* name :
       {"avx512_emulated", "avx512bf16_emulated", "avx512vnni_emulated", "amx_emulated"}) {
    if (install(*emulated_group(name), operation, set)) names.emplace_back(name);
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

// The implementation where this CPU runs it, and elsewhere its emulation: tests of what has the
// same bits everywhere run on every machine.
inline std::string or_emulation(const std::string& operation, const std::string& implementation) {
  return obstacle(operation, implementation).empty() ? implementation
                                                     : emulation_of(implementation);
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
                        << ", the reference has " << to_float(want[at]);
}

template <class T>
double largest_magnitude(const std::vector<T>& x) {
  double most = 0;
  for (const T e : x) most = std::max(most, std::abs(static_cast<double>(to_float(e))));
  return most;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
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
