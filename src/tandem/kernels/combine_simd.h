// Internal: the loops of combine.h for one instruction set, whose vector type V also names the
// instances. Include it only from sources compiled with those instructions.
#pragma once

#include <cstring>
#include <type_traits>

#include "tandem/core/float16.h"
#include "tandem/kernels/combine.h"
#include "tandem/kernels/simd/loop.h"

namespace tandem::kernels::simd {

// x = x op y, for numbers and for vectors of them.
template <Combine kCombine, class X>
[[gnu::always_inline]] inline void combine_into(X& x, const X& y) {
  if constexpr (kCombine == Combine::kSum) {
    x = x + y;
  } else if constexpr (kCombine == Combine::kProduct) {
    x = x * y;
  } else if constexpr (kCombine == Combine::kMin) {
    x = y < x ? y : x;
  } else {
    x = x < y ? y : x;
  }
}

// Signed integers wrap around when they are added as unsigned ones.
template <class T, Combine kCombine>
struct Computed {
  using Type = T;
};
template <class T, Combine kCombine>
requires(std::is_integral_v<T> && (kCombine == Combine::kSum ||
                                   kCombine == Combine::kProduct)) struct Computed<T, kCombine> {
  using Type = std::make_unsigned_t<T>;
};

// As many bytes at a time as V has, four times: the compiler's own vectors, no wider than the
// registers. It puts wider ones together on the stack, in halves that a load of the whole waits
// for.
template <class V, class T, Combine kCombine>
void pair(std::size_t count, const void* a, const void* b, void* dst) {
  using Number = typename Computed<T, kCombine>::Type;
  typedef Number Vector __attribute__((vector_size(V::kLanes * sizeof(float))));
  constexpr std::size_t kLanes = sizeof(Vector) / sizeof(Number);
  constexpr std::size_t kVectors = 4;
  const auto* x = static_cast<const Number*>(a);
  const auto* y = static_cast<const Number*>(b);
  auto* z = static_cast<Number*>(dst);
  std::size_t i = 0;
  for (; i + kVectors * kLanes <= count; i += kVectors * kLanes) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      Vector left;
      Vector right;
      std::memcpy(&left, x + i + v * kLanes, sizeof left);
      std::memcpy(&right, y + i + v * kLanes, sizeof right);
      combine_into<kCombine>(left, right);
      std::memcpy(z + i + v * kLanes, &left, sizeof left);
    }
  }
  for (; i < count; ++i) {
    // Small integers are promoted to int, whose product does not overflow.
    using Scalar = std::conditional_t<sizeof(Number) == 1, int, Number>;
    Scalar value = x[i];
    combine_into<kCombine, Scalar>(value, y[i]);
    z[i] = static_cast<Number>(value);
  }
}

template <class V, Combine kCombine>
[[gnu::always_inline]] inline V combined_f32(V x, V y) {
  if constexpr (kCombine == Combine::kSum) {
    return x + y;
  } else if constexpr (kCombine == Combine::kProduct) {
    return x * y;
  } else if constexpr (kCombine == Combine::kMin) {
    return V::min(y, x);  // the second operand where they are equal or one is NaN
  } else {
    return V::max(y, x);
  }
}

// T: bfloat16 or float16.
template <class V, class T, Combine kCombine>
void pair_16(std::size_t count, const void* a, const void* b, void* dst) {
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(dst);
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        at.store(combined_f32<V, kCombine>(at.load(x), at.load(y)), z);
      });
}

template <class V, class T>
void divide(std::size_t count, int divisor, void* data) {
  auto* x = static_cast<T*>(data);
  if constexpr (std::is_floating_point_v<T>) {
    const auto by = static_cast<T>(divisor);
    for (std::size_t i = 0; i < count; ++i) x[i] = x[i] / by;
  } else if constexpr (sizeof(T) <= 4) {
    // f64 holds these integers, and its rounding is smaller than the distance of a broken quotient
    // to the next integer.
    const auto by = static_cast<double>(divisor);
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>(static_cast<double>(x[i]) / by);
  } else {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    const auto by = static_cast<Wide>(divisor);
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>(static_cast<Wide>(x[i]) / by);
  }
}

template <class V, class T>
void widen(std::size_t count, const void* from, float* to) {
  const auto* x = static_cast<const T*>(from);
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) { at.store(at.load(x), to); });
}

template <class V, class T>
void narrow(std::size_t count, const float* from, void* to) {
  auto* z = static_cast<T*>(to);
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) { at.store(at.load(from), z); });
}

template <class V, class T>
constexpr void fill_row(CombineKernels& kernels, Element element) {
  const auto row = static_cast<std::size_t>(element);
  kernels.pair[row][0] = pair<V, T, Combine::kSum>;
  kernels.pair[row][1] = pair<V, T, Combine::kProduct>;
  kernels.pair[row][2] = pair<V, T, Combine::kMin>;
  kernels.pair[row][3] = pair<V, T, Combine::kMax>;
  kernels.divide[row] = divide<V, T>;
}

template <class V, class T>
constexpr void fill_row_16(CombineKernels& kernels, Element element) {
  const auto row = static_cast<std::size_t>(element);
  kernels.pair[row][0] = pair_16<V, T, Combine::kSum>;
  kernels.pair[row][1] = pair_16<V, T, Combine::kProduct>;
  kernels.pair[row][2] = pair_16<V, T, Combine::kMin>;
  kernels.pair[row][3] = pair_16<V, T, Combine::kMax>;
}

template <class V>
constexpr CombineKernels combine_kernels(const char* name) {
  CombineKernels kernels{};
  kernels.implementation = name;
  fill_row<V, std::int8_t>(kernels, Element::kInt8);
  fill_row<V, std::uint8_t>(kernels, Element::kUint8);
  fill_row<V, std::int32_t>(kernels, Element::kInt32);
  fill_row<V, std::int64_t>(kernels, Element::kInt64);
  fill_row<V, std::uint64_t>(kernels, Element::kUint64);
  fill_row<V, float>(kernels, Element::kFloat32);
  fill_row<V, double>(kernels, Element::kFloat64);
  fill_row_16<V, bfloat16>(kernels, Element::kBfloat16);
  fill_row_16<V, float16>(kernels, Element::kFloat16);
  kernels.widen_bfloat16 = widen<V, bfloat16>;
  kernels.widen_float16 = widen<V, float16>;
  kernels.narrow_bfloat16 = narrow<V, bfloat16>;
  kernels.narrow_float16 = narrow<V, float16>;
  return kernels;
}

}  // namespace tandem::kernels::simd
