// Reductions of collectives over the numbers of several ranks: dst = a op b over flat arrays of any
// type.
//
// A library of its own, so that communication does not bring the matrix products along. Every
// implementation computes the same bits: one operation per element, no contraction, and the 16-bit
// floats are computed in f32 and rounded to nearest even once. (NaN and signed zeros too: min is `b
// < a ? b : a`, max is `a < b ? b : a`, both f32 for the 16-bit floats.) Sums and products of
// integers wrap around.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tandem/kernels/cpu_features.h"

namespace tandem::kernels {

enum class Element : std::uint8_t {
  kInt8,
  kUint8,
  kInt32,
  kInt64,
  kUint64,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat16
};
inline constexpr std::size_t kNumElements = 9;
enum class Combine : std::uint8_t { kSum, kProduct, kMin, kMax };
inline constexpr std::size_t kNumCombines = 4;

// Pointers need the alignment of the element only. `dst` may be `a` or `b`, but not overlap them in
// another way.
struct CombineKernels {
  std::string_view implementation;  // "avx512", "avx2", "reference"
  using Pair = void (*)(std::size_t count, const void* a, const void* b, void* dst);
  Pair pair[kNumElements][kNumCombines];
  // data /= divisor, in place, correctly rounded (floats) or towards zero (integers). Null for the
  // 16-bit floats: divide the f32 that they came from.
  using Divide = void (*)(std::size_t count, int divisor, void* data);
  Divide divide[kNumElements];
  // The 16-bit floats to f32, and rounded back.
  void (*widen_bfloat16)(std::size_t count, const void* from, float* to);
  void (*widen_float16)(std::size_t count, const void* from, float* to);
  void (*narrow_bfloat16)(std::size_t count, const float* from, void* to);
  void (*narrow_float16)(std::size_t count, const float* from, void* to);

  Pair of(Element element, Combine combine) const {
    return pair[static_cast<std::size_t>(element)][static_cast<std::size_t>(combine)];
  }
};

// The fastest implementation that `cpu` runs, or the one named. Throws ConfigError for a name that
// does not exist or that this CPU cannot run. The result is never destroyed.
const CombineKernels& select_combine(const CpuFeatures& cpu, std::string_view forced = {});

}  // namespace tandem::kernels
