// Internal: the optimizers, written once over an instruction set's vector type V.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/unroll.h"
#include "tandem/kernels/undo_log.h"

namespace tandem::kernels::simd {

// update(begin, end) for all of [0, count); with a log in blocks, of which `arrays` are kept first
// (reference: in_blocks() of optimizer_ref.cc). A null array has nothing to keep.
template <class V, std::size_t kArrays, class Update>
[[gnu::always_inline]] inline void in_blocks(std::size_t count, const UndoLog* undo,
                                             float* const (&arrays)[kArrays], Update update) {
  if (undo == nullptr) return update(std::size_t{0}, count);
  std::size_t half = undo->next_half();
  for (std::size_t begin = 0; begin < count; begin += UndoLog::kBlock, half ^= 1) {
    const std::size_t left = count - begin;
    const std::size_t size = left < UndoLog::kBlock ? left : UndoLog::kBlock;
    for (std::size_t a = 0; a < kArrays; ++a) {
      float* const values = undo->values + half * UndoLog::kHalf + a * UndoLog::kBlock;
      if (arrays[a] == nullptr) continue;
      for_each_vector<V>(
          size, [&](auto at) __attribute__((always_inline)) {
            at.store(at.load(arrays[a] + begin), values);
          });
    }
    undo->keep(begin, size, half);
    update(begin, begin + size);
  }
}

// The arrays of one call.
struct AdamWArrays {
  const float* grad;
  float *parameters, *exp_avg, *exp_avg_sq;
  bfloat16* copy;  // or null
};

template <class V, class Lanes>
[[gnu::always_inline]] inline void adamw_vector(const AdamWFactors& f, const AdamWArrays& a,
                                                Lanes at) {
  const V g = at.load(a.grad) * V::set1(f.grad_scale);
  V m = at.load(a.exp_avg);
  m = V::fma(V::set1(f.one_minus_beta1), g - m, m);
  const V v = V::fma(V::set1(f.one_minus_beta2) * g, g, V::set1(f.beta2) * at.load(a.exp_avg_sq));
  const V denominator = V::fma(V::sqrt(v), V::set1(f.inverse_sqrt_correction2), V::set1(f.eps));
  const V moved =
      at.load(a.parameters) * V::set1(f.decay) - V::set1(f.step_size) * (m / denominator);
  const V p = moved * V::set1(f.decay_after);
  at.store(m, a.exp_avg);
  at.store(v, a.exp_avg_sq);
  at.store(p, a.parameters);
  if (a.copy != nullptr) at.store(p, a.copy);
}

// An element whose gradient and moments are zero keeps zero moments, and its parameter only decays.
// True where this holds bit for bit: m / denominator is +0 and no factor makes a NaN of a zero.
[[gnu::always_inline]] inline bool adamw_keeps_zeros(const AdamWFactors& f) {
  const float move = f.step_size * (0.0f / (0.0f * f.inverse_sqrt_correction2 + f.eps));
  return f.grad_scale * 0.0f == 0.0f && __builtin_bit_cast(std::uint32_t, move) == 0u;
}

// Four vectors of elements that no step has touched yet.
template <class V>
[[gnu::always_inline]] inline bool adamw_untouched(const AdamWArrays& a, std::size_t i) {
  typename V::Words bits = V::words(0);
  unroll<4>([&](auto c) __attribute__((always_inline)) {
    const std::size_t at = i + c * V::kLanes;
    bits = V::inclusive_or(bits, V::as_words(V::abs(V::load(a.grad + at))));
    bits = V::inclusive_or(bits, V::as_words(V::load(a.exp_avg + at)));
    bits = V::inclusive_or(bits, V::as_words(V::load(a.exp_avg_sq + at)));
  });
  return V::all_zero(bits);
}

// Elements [begin, end), which begin and end anywhere. Many rows of an embedding table are never
// touched. Where four vectors are not, three arrays are read and nothing is written; with a decay,
// the parameter and its copy.
template <class V>
[[gnu::noinline]] void adamw_range(const AdamWFactors& f, const AdamWArrays& a, bool keeps_zeros,
                                   std::size_t begin, std::size_t end) {
  constexpr std::size_t kBlock = 4 * V::kLanes;
  const std::size_t whole = begin + (end - begin) / kBlock * kBlock;
  for (std::size_t i = begin; i < whole; i += kBlock) {
    if (!keeps_zeros || !adamw_untouched<V>(a, i)) {
      unroll<4>([&](auto c) __attribute__((always_inline)) {
        adamw_vector<V>(f, a, Whole<V>{i + c * V::kLanes});
      });
    } else if (f.decay != 1.0f || f.decay_after != 1.0f) {
      unroll<4>([&](auto c) __attribute__((always_inline)) {
        const Whole<V> at{i + c * V::kLanes};
        const V p = at.load(a.parameters) * V::set1(f.decay) * V::set1(f.decay_after);
        at.store(p, a.parameters);
        if (a.copy != nullptr) at.store(p, a.copy);
      });
    }
  }
  for (std::size_t i = whole; i < end; i += V::kLanes) {
    if (i + V::kLanes <= end) {
      adamw_vector<V>(f, a, Whole<V>{i});
    } else {
      adamw_vector<V>(f, a, Ragged<V>{i, end - i});
    }
  }
}

template <class V>
void adamw(const AdamWFactors& f, std::size_t count, const float* grad, float* parameters,
           float* exp_avg, float* exp_avg_sq, bfloat16* copy, const UndoLog* undo) {
  const AdamWArrays a = {grad, parameters, exp_avg, exp_avg_sq, copy};
  const bool keeps_zeros = adamw_keeps_zeros(f);
  in_blocks<V>(
      count, undo, {parameters, exp_avg, exp_avg_sq},
      [&](std::size_t begin, std::size_t end) { adamw_range<V>(f, a, keeps_zeros, begin, end); });
}

template <class V>
void sgd(const SgdFactors& f, std::size_t count, const float* grad, float* parameters,
         float* buffer, bfloat16* copy, const UndoLog* undo) {
  const auto update_vector = [&](auto at) __attribute__((always_inline)) {
    V p = at.load(parameters);
    const V g = V::fma(V::set1(f.weight_decay), p, at.load(grad) * V::set1(f.grad_scale));
    V update = g;
    if (buffer != nullptr) {
      const V b = V::fma(V::set1(f.add), g, V::set1(f.keep) * at.load(buffer));
      at.store(b, buffer);
      update = f.nesterov ? V::fma(V::set1(f.ahead), b, g) : b;
    }
    p = V::fnma(V::set1(f.lr), update, p);
    at.store(p, parameters);
    if (copy != nullptr) at.store(p, copy);
  };
  in_blocks<V>(count, undo, {parameters, buffer}, [&](std::size_t begin, std::size_t end) {
    for_each_vector<V>(begin, end, update_vector);
  });
}

template <class V>
void adagrad(const AdagradFactors& f, std::size_t count, const float* grad, float* parameters,
             float* sum, bfloat16* copy, const UndoLog* undo) {
  const auto update_vector = [&](auto at) __attribute__((always_inline)) {
    V p = at.load(parameters);
    const V g = V::fma(V::set1(f.weight_decay), p, at.load(grad) * V::set1(f.grad_scale));
    const V s = V::fma(g, g, V::fma(V::set1(f.keep), at.load(sum), V::set1(f.start)));
    p = p - V::set1(f.lr) * (g / (V::sqrt(s) + V::set1(f.eps)));
    at.store(s, sum);
    at.store(p, parameters);
    if (copy != nullptr) at.store(p, copy);
  };
  in_blocks<V>(count, undo, {parameters, sum}, [&](std::size_t begin, std::size_t end) {
    for_each_vector<V>(begin, end, update_vector);
  });
}

template <class V>
constexpr OptimizerKernels optimizer_kernels() {
  return {.adamw = adamw<V>, .sgd = sgd<V>, .adagrad = adagrad<V>};
}

}  // namespace tandem::kernels::simd
