// Internal: the loops of peak.h, written once over an instruction set's vector type V and a `Unit`
// as in gemm_simd.h.
#pragma once

#include <cstddef>

#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/peak.h"
#include "tandem/kernels/simd/unroll.h"

namespace tandem::kernels::simd {

// As peak() of gemm_simd.h, with one operand of each multiply_add from memory.
template <class Unit>
double l1_peak(std::size_t iterations, const float* block) {
  using V = typename Unit::V;
  constexpr int kChains = kPeakChains<V>;
  constexpr std::size_t kGroups = kL1Floats / (kChains * V::kLanes);
  V sum[kChains];
  unroll<kChains>([&](auto i) __attribute__((always_inline)) { sum[i] = V::zero(); });
  typename V::Words a = V::words(0);
  for (std::size_t n = 0; n < iterations; ++n) {
    __asm__ volatile("" : "+v"(a));  // the compiler must believe that `a` is new in every round
    const float* group = block;
    for (std::size_t g = 0; g < kGroups; ++g, group += kChains * V::kLanes) {
      unroll<kChains>([&](auto i) __attribute__((always_inline)) {
        sum[i] = Unit::multiply_add(a, V::load_words(group + i * V::kLanes), sum[i]);
      });
    }
  }
  V total = V::zero();
  unroll<kChains>([&](auto i) __attribute__((always_inline)) { total = total + sum[i]; });
  const double flops =
      2.0 * Unit::kReduced * kGroups * kChains * V::kLanes * static_cast<double>(iterations);
  return flops + static_cast<double>(V::sum(total));
}

template <class V>
float stream_read(std::size_t count, const float* x) {
  constexpr int kChains = 8;
  V sum[kChains];
  unroll<kChains>([&](auto i) __attribute__((always_inline)) { sum[i] = V::zero(); });
  for (std::size_t n = 0; n < count; n += kChains * V::kLanes) {
    unroll<kChains>([&](auto i) __attribute__((always_inline)) {
      sum[i] = sum[i] + V::load(x + n + i * V::kLanes);
    });
  }
  V total = V::zero();
  unroll<kChains>([&](auto i) __attribute__((always_inline)) { total = total + sum[i]; });
  return V::sum(total);
}

template <class V>
void stream_copy(std::size_t count, const float* from, float* to) {
  for (std::size_t n = 0; n < count; n += V::kLanes) V::store(V::load(from + n), to + n);
}

template <class V>
void stream_update(std::size_t count, const float* grad, float* parameters, float* exp_avg,
                   float* exp_avg_sq, bfloat16* copy) {
  for (std::size_t n = 0; n < count; n += V::kLanes) {
    const V g = V::load(grad + n);
    const V p = V::load(parameters + n) + g;
    V::store(V::load(exp_avg + n) + g, exp_avg + n);
    V::store(V::load(exp_avg_sq + n) + g, exp_avg_sq + n);
    V::store(p, parameters + n);
    if (copy != nullptr) V::store(p, copy + n);
  }
}

template <class V>
constexpr StreamLoops streams() {
  return {.read = stream_read<V>, .copy = stream_copy<V>, .update = stream_update<V>};
}

}  // namespace tandem::kernels::simd
