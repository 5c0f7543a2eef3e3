// Internal: dropout, layer normalisation and sums, written once over an instruction set's vector
// type V.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "tandem/kernels/dropout_simd.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/math.h"
#include "tandem/kernels/simd/sixteen_lanes.h"
#include "tandem/kernels/simd/unroll.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels::simd {

// --- dropout ---

template <class V, class T>
void dropout_row(const DropoutMask& mask, std::uint32_t row, std::size_t columns, const T* x,
                 T* y) {
  for_each_masked_vector<V>(
      mask, row, columns, [&](auto at, V factor) __attribute__((always_inline)) {
        at.store(at.load(x) * factor, y);
      });
}

template <class V, class T>
void dropout_add(const DropoutMask& mask, std::uint32_t row, std::size_t columns, const T* x,
                 const float* residual, float* sum) {
  for_each_masked_vector<V>(
      mask, row, columns, [&](auto at, V factor) __attribute__((always_inline)) {
        at.store(at.load(x) * factor + at.load(residual), sum);
      });
}

template <class V, class T>
void dropout_add_backward(const DropoutMask& mask, std::uint32_t row, std::size_t columns,
                          const float* grad_sum, T* grad_x) {
  for_each_masked_vector<V>(
      mask, row, columns, [&](auto at, V factor) __attribute__((always_inline)) {
        at.store(at.load(grad_sum) * factor, grad_x);
      });
}

template <class V>
constexpr DropoutKernels dropout_kernels() {
  return {.f32 = {dropout_row<V, float>, dropout_add<V, float>, dropout_add_backward<V, float>},
          .bf16 = {dropout_row<V, bfloat16>, dropout_add<V, bfloat16>,
                   dropout_add_backward<V, bfloat16>}};
}

// --- rotary positions ---

template <class V, class T>
void rotate_row(const RotaryRow<T>& r) {
  const V direction = V::set1(r.direction);
  for (std::size_t head = 0; head < r.heads; ++head) {
    T* first = r.x + head * 2 * r.half;
    T* second = first + r.half;
    for_each_vector<V>(
        r.half, [&](auto at) __attribute__((always_inline)) {
          const V cos = at.load(r.cos);
          const V sin = at.load(r.sin) * direction;
          const V x1 = at.load(first);
          const V x2 = at.load(second);
          at.store(V::fnma(x2, sin, x1 * cos), first);
          at.store(V::fma(x1, sin, x2 * cos), second);
        });
  }
}

template <class V>
constexpr RotaryKernels rotary_kernels() {
  return {.f32 = {rotate_row<V, float>}, .bf16 = {rotate_row<V, bfloat16>}};
}

// --- layer normalisation: a row stays in the L1 cache, so each sum gets a pass of its own, in 16
// lanes (simd/sixteen_lanes.h) ---

// y from the sum and its statistics.
template <class V, class T>
void layer_norm_recompute(const LayerNormRowRecompute<T>& r) {
  const V mean = V::set1(r.mean);
  const V rstd = V::set1(r.rstd);
  for_each_vector<V>(
      r.H, [&](auto at) __attribute__((always_inline)) {
        const V beta = r.beta == nullptr ? V::zero() : at.load(r.beta);
        fetch_ahead(at, r.sum);
        if (r.y != nullptr) claim_ahead(at, r.y);
        const V y = V::fma((at.load(r.sum) - mean) * rstd, at.load(r.gamma), beta);
        if (r.y != nullptr) at.store(y, r.y);
        if (r.y_copy != nullptr) at.store(y, r.y_copy);
      });
}

template <class V, class T>
void layer_norm_forward(const LayerNormRow<T>& r) {
  const float inverse_H = 1.0f / static_cast<float>(r.H);
  V total = V::zero();
  for_each_masked_vector<V>(
      r.mask, r.row, r.H, [&](auto at, V factor) __attribute__((always_inline)) {
        if (r.x != nullptr) fetch_ahead(at, r.x);
        if (r.residual != nullptr) fetch_ahead(at, r.residual);
        claim_ahead(at, r.sum);
        V sum = r.x == nullptr ? V::zero() : at.load(r.x) * factor;
        if (r.residual != nullptr) sum = sum + at.load(r.residual);
        at.store(sum, r.sum);
        total = total + sum;
      });
  const float of_row = r.mean == nullptr ? 0.0f : V::sum(total) * inverse_H;
  if (r.mean != nullptr) *r.mean = of_row;
  const V mean = V::set1(of_row);
  V squares = V::zero();
  for_each_vector<V>(
      r.H, [&](auto at) __attribute__((always_inline)) {
        const V deviation = at.keep(at.load(r.sum) - mean);
        squares = V::fma(deviation, deviation, squares);
      });
  *r.rstd = 1.0f / __builtin_sqrtf(V::sum(squares) * inverse_H + r.eps);
  layer_norm_recompute<V, T>({.H = r.H,
                              .sum = r.sum,
                              .gamma = r.gamma,
                              .beta = r.beta,
                              .mean = of_row,
                              .rstd = *r.rstd,
                              .y = r.y,
                              .y_copy = r.y_copy});
}

// With xhat = (sum - mean) rstd and g = gamma grad_y:
//   grad_sum = rstd (g - mean(g) - xhat mean(g xhat)). RMSNorm has no mean(g).
template <class V, class T>
void layer_norm_backward(const LayerNormRowBackward<T>& r) {
  const V mean = V::set1(r.mean);
  const V rstd = V::set1(r.rstd);
  V sum_g = V::zero();
  V sum_g_xhat = V::zero();
  for_each_vector<V>(
      r.H, [&](auto at) __attribute__((always_inline)) {
        fetch_ahead(at, r.grad_y);
        fetch_ahead(at, r.sum);
        claim_ahead(at, r.grad_sum);
        const V grad_y = at.load(r.grad_y);
        const V xhat = (at.load(r.sum) - mean) * rstd;
        const V g = grad_y * at.load(r.gamma);
        sum_g = sum_g + g;
        sum_g_xhat = V::fma(g, xhat, sum_g_xhat);
        at.store(V::fma(grad_y, xhat, at.load(r.grad_gamma)), r.grad_gamma);
        if (r.grad_beta != nullptr) at.store(at.load(r.grad_beta) + grad_y, r.grad_beta);
      });
  const float inverse_H = 1.0f / static_cast<float>(r.H);
  const V mean_g = V::set1(r.centered ? V::sum(sum_g) * inverse_H : 0.0f);
  const V mean_g_xhat = V::set1(V::sum(sum_g_xhat) * inverse_H);
  for_each_masked_vector<V>(
      r.mask, r.row, r.H, [&](auto at, V factor) __attribute__((always_inline)) {
        const V xhat = (at.load(r.sum) - mean) * rstd;
        const V g = at.load(r.grad_y) * at.load(r.gamma);
        V grad = rstd * V::fnma(xhat, mean_g_xhat, g - mean_g);
        if (r.grad_beside != nullptr) grad = grad + at.load(r.grad_beside);
        at.store(grad, r.grad_sum);
        if (r.grad_x != nullptr) at.store(grad * factor, r.grad_x);
      });
}

template <class Vec>
constexpr LayerNormKernels layer_norm_kernels() {
  using V = SixteenLanes<Vec>;
  return {.f32 = {layer_norm_forward<V, float>, layer_norm_recompute<V, float>,
                  layer_norm_backward<V, float>},
          .bf16 = {layer_norm_forward<V, bfloat16>, layer_norm_recompute<V, bfloat16>,
                   layer_norm_backward<V, bfloat16>}};
}

// --- sums and conversions ---

// Groups of kChains neighbouring vectors of the columns from c on, as long as there are whole ones;
// returns the first column that is left.
template <class V, std::size_t kChains, class T>
std::size_t add_sums_of_groups(std::size_t rows, std::size_t columns, const T* x, std::size_t ld,
                               float* sums, std::size_t c) {
  constexpr std::size_t kTogether = kChains * V::kLanes;
  for (; c + kTogether <= columns; c += kTogether) {
    V sum[kChains];
    unroll<kChains>([&](auto i) __attribute__((always_inline)) {
      sum[i] = V::load(sums + c + i * V::kLanes);
    });
    for (std::size_t row = 0; row < rows; ++row) {
      const T* from = x + row * ld + c;
      // Rows are too far apart for the hardware to foresee.
      constexpr std::size_t kRowsAhead = 16, kLine = 64 / sizeof(T);
      for (std::size_t i = 0; i < kTogether; i += kLine)
        __builtin_prefetch(from + kRowsAhead * ld + i);
      unroll<kChains>([&](auto i) __attribute__((always_inline)) {
        sum[i] = sum[i] + V::load(from + i * V::kLanes);
      });
    }
    unroll<kChains>([&](auto i) __attribute__((always_inline)) {
      V::store(sum[i], sums + c + i * V::kLanes);
    });
  }
  return c;
}

template <class V, class T>
void add_column_sums(std::size_t rows, std::size_t columns, const T* x, std::size_t ld,
                     float* sums) {
  // Neighbouring vectors walk down together: one chain of additions waits for itself.
  std::size_t c = add_sums_of_groups<V, 8>(rows, columns, x, ld, sums, 0);
  c = add_sums_of_groups<V, 2>(rows, columns, x, ld, sums, c);
  x += c;
  sums += c;
  for_each_vector<V>(
      columns - c, [&](auto at) __attribute__((always_inline)) {
        V sum = at.load(sums);
        for (std::size_t row = 0; row < rows; ++row) sum = sum + at.load(x + row * ld);
        at.store(sum, sums);
      });
}

// Four chains of additions hide the latency of one.
template <class Vec>
double squared_norm(std::size_t count, const float* x) {
  using V = SixteenLanes<Vec>;
  typename V::Doubles chains[4] = {V::zero_doubles(), V::zero_doubles(), V::zero_doubles(),
                                   V::zero_doubles()};
  constexpr std::size_t kRound = 4 * V::kLanes;
  const std::size_t whole = count / kRound * kRound;
  for (std::size_t i = 0; i < whole; i += kRound) {
    unroll<4>([&](auto c) __attribute__((always_inline)) {
      chains[c] = V::add_squares(V::load(x + i + c * V::kLanes), chains[c]);
    });
  }
  for_each_vector<V>(
      count - whole, [&](auto at) __attribute__((always_inline)) {
        chains[0] = V::add_squares(at.load(x + whole), chains[0]);
      });
  return (V::sum(chains[0]) + V::sum(chains[1])) + (V::sum(chains[2]) + V::sum(chains[3]));
}

template <class V>
void add(std::size_t count, const float* a, const float* b, float* dst) {
  for_each_vector<V>(
      count, [&](auto at)
                 __attribute__((always_inline)) { at.store(at.load(a) + at.load(b), dst); });
}

template <class V>
void scale(std::size_t count, float factor, const float* x, float* y) {
  for_each_vector<V>(
      count, [&](auto at)
                 __attribute__((always_inline)) { at.store(at.load(x) * V::set1(factor), y); });
}

template <class V, class From, class To>
void convert(std::size_t count, const From* from, To* to) {
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) { at.store(at.load(from), to); });
}

template <class V>
float largest(std::size_t count, const float* x) {
  const V none = V::set1(-std::numeric_limits<float>::infinity());
  V most = none;
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        most = V::max(most, at.keep_or(at.load(x), none));
      });
  alignas(64) float lanes[V::kLanes];
  V::store(most, lanes);
  float of_all = lanes[0];
  for (std::size_t i = 1; i < V::kLanes; ++i) of_all = lanes[i] > of_all ? lanes[i] : of_all;
  return of_all;
}

// e^(x - shift), where the difference is at most 0.
template <class V>
[[gnu::always_inline]] inline V shifted_exp(V x, float shift) {
  return exp_within(V::max(V::set1(-105.0f), x - V::set1(shift)));
}

// In 16 lanes, one order on every instruction set.
template <class Vec>
float exp_sum(std::size_t count, float shift, const float* x) {
  using V = SixteenLanes<Vec>;
  V sum = V::zero();
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        sum = sum + at.keep(shifted_exp(at.load(x), shift));
      });
  return V::sum(sum);
}

template <class V>
void scaled_exp(std::size_t count, float shift, float factor, const float* x, float* y) {
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        at.store(shifted_exp(at.load(x), shift) * V::set1(factor), y);
      });
}

template <class V>
constexpr ReduceKernels reduce_kernels() {
  return {.f32 = {add_column_sums<V, float>},
          .bf16 = {add_column_sums<V, bfloat16>},
          .squared_norm = squared_norm<V>,
          .add = add<V>,
          .scale = scale<V>,
          .to_bf16 = convert<V, float, bfloat16>,
          .to_f32 = convert<V, bfloat16, float>,
          .largest = largest<V>,
          .exp_sum = exp_sum<V>,
          .scaled_exp = scaled_exp<V>};
}

// --- the elementary functions themselves ---

template <class V>
constexpr MathFunctions math_functions() {
  return {.exp =
              [](std::size_t count, const float* x, float* y) {
                for_each_vector<V>(
                    count, [&](auto at)
                               __attribute__((always_inline)) { at.store(exp(at.load(x)), y); });
              },
          .exp2 =
              [](std::size_t count, const float* x, float* y) {
                for_each_vector<V>(
                    count, [&](auto at) __attribute__((always_inline)) {
                      at.store(exp2_below(at.load(x)), y);
                    });
              },
          .erf =
              [](std::size_t count, const float* x, float* y) {
                for_each_vector<V>(
                    count, [&](auto at)
                               __attribute__((always_inline)) { at.store(erf(at.load(x)), y); });
              }};
}

}  // namespace tandem::kernels::simd
