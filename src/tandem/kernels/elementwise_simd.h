// Internal: activations, dropout, layer normalisation and sums, written once over an instruction
// set's vector type V.
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

// --- activations ---

inline constexpr float kGeluNewSlope = 1.59576912160573071f;  // 2 sqrt(2/pi)
inline constexpr float kGeluNewCubic = 0.044715f;

// x Phi(x) with t = |x|: Phi(x) is Phi(-t) where x < 0 and 1 - Phi(-t) elsewhere, so the value is
// max(x, 0) - t Phi(-t), and the derivative Phi(x) + x phi(x) is d := Phi(-t) - t phi(t) or 1 - d.
template <class V>
struct Gelu {
  // t up to where the tail is zero. NaN stays NaN.
  [[gnu::always_inline]] static V magnitude(V x) { return V::min(V::set1(kTailEnd), V::abs(x)); }
  [[gnu::always_inline]] static V value(V x) {
    const V t = magnitude(x);
    return V::fnma(t, normal_tail(t).below, V::max(V::zero(), x));
  }
  [[gnu::always_inline]] static V derivative(V x, V& value) {
    const V t = magnitude(x);
    const NormalTail<V> tail = normal_tail(t);
    value = V::fnma(t, tail.below, V::max(V::zero(), x));
    const V d = V::fnma(t, tail.density, tail.below);
    return V::select(V::less(x, V::zero()), d, V::set1(1.0f) - d);
  }
};

// 0.5 (1 + tanh u) = sigmoid(2u) =: s, so the value is x s
// and the derivative s + x s (1 - s) (2u)'.
template <class V>
struct GeluNew {
  [[gnu::always_inline]] static Sigmoid<V> gate(V x) {
    const V cubic = V::fma(x * x * x, V::set1(kGeluNewCubic), x);
    return sigmoid(cubic * V::set1(kGeluNewSlope));
  }
  [[gnu::always_inline]] static V value(V x) { return x * gate(x).value; }
  [[gnu::always_inline]] static V derivative(V x, V& value) {
    const Sigmoid<V> s = gate(x);
    value = x * s.value;
    const V slope =
        V::fma(x * x, V::set1(3.0f * kGeluNewCubic * kGeluNewSlope), V::set1(kGeluNewSlope));
    return V::fma(value * s.rest, slope, s.value);
  }
};

template <class V>
struct Relu {
  [[gnu::always_inline]] static V value(V x) { return V::max(V::zero(), x); }
  [[gnu::always_inline]] static V derivative(V x, V& y) {
    y = value(x);
    return V::select(V::less_equal(x, V::zero()), V::zero(), V::set1(1.0f));
  }
};

template <class V>
struct Tanh {
  [[gnu::always_inline]] static V value(V x) { return tanh(x); }
  [[gnu::always_inline]] static V derivative(V x, V& y) {
    y = value(x);
    return V::fnma(y, y, V::set1(1.0f));
  }
};

template <class V, class Function, class T>
void activate(std::size_t count, const T* x, T* y) {
  for_each_vector<V>(
      count, [&](auto at)
                 __attribute__((always_inline)) { at.store(Function::value(at.load(x)), y); });
}

template <class V, class Function, class T>
void activate_backward(std::size_t count, const T* x, const T* grad_y, T* grad_x, T* y) {
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        V value;
        at.store(at.load(grad_y) * Function::derivative(at.load(x), value), grad_x);
        if (y != nullptr) at.store(value, y);
      });
}

template <class V, class T>
void activation_forward(Activation activation, std::size_t count, const T* x, T* y) {
  switch (activation) {
    case Activation::kGelu:
      return activate<V, Gelu<V>>(count, x, y);
    case Activation::kGeluNew:
      return activate<V, GeluNew<V>>(count, x, y);
    case Activation::kRelu:
      return activate<V, Relu<V>>(count, x, y);
    case Activation::kTanh:
      return activate<V, Tanh<V>>(count, x, y);
  }
}

template <class V, class T>
void activation_backward(Activation activation, std::size_t count, const T* x, const T* grad_y,
                         T* grad_x, T* y) {
  switch (activation) {
    case Activation::kGelu:
      return activate_backward<V, Gelu<V>>(count, x, grad_y, grad_x, y);
    case Activation::kGeluNew:
      return activate_backward<V, GeluNew<V>>(count, x, grad_y, grad_x, y);
    case Activation::kRelu:
      return activate_backward<V, Relu<V>>(count, x, grad_y, grad_x, y);
    case Activation::kTanh:
      return activate_backward<V, Tanh<V>>(count, x, grad_y, grad_x, y);
  }
}

template <class V, class Function, class T>
void gate(std::size_t count, const T* x, const T* gate, T* y) {
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        at.store(Function::value(at.load(x)) * at.load(gate), y);
      });
}

template <class V, class Function, class T>
void gate_backward(const GatedRowBackward<T>& r) {
  for_each_vector<V>(
      r.count, [&](auto at) __attribute__((always_inline)) {
        V value;
        const V slope = Function::derivative(at.load(r.x), value);
        const V gate = at.load(r.gate);
        const V grad_y = at.load(r.grad_y);
        at.store(grad_y * gate * slope, r.grad_x);
        at.store(grad_y * value, r.grad_gate);
        if (r.y != nullptr) at.store(value * gate, r.y);
      });
}

template <class V, class T>
void gated_forward(Activation activation, std::size_t count, const T* x, const T* gates, T* y) {
  switch (activation) {
    case Activation::kGelu:
      return gate<V, Gelu<V>>(count, x, gates, y);
    case Activation::kGeluNew:
      return gate<V, GeluNew<V>>(count, x, gates, y);
    case Activation::kRelu:
      return gate<V, Relu<V>>(count, x, gates, y);
    case Activation::kTanh:
      return gate<V, Tanh<V>>(count, x, gates, y);
  }
}

template <class V, class T>
void gated_backward(Activation activation, const GatedRowBackward<T>& r) {
  switch (activation) {
    case Activation::kGelu:
      return gate_backward<V, Gelu<V>>(r);
    case Activation::kGeluNew:
      return gate_backward<V, GeluNew<V>>(r);
    case Activation::kRelu:
      return gate_backward<V, Relu<V>>(r);
    case Activation::kTanh:
      return gate_backward<V, Tanh<V>>(r);
  }
}

template <class V>
constexpr ActivationKernels activation_kernels() {
  return {.f32 = {activation_forward<V, float>, activation_backward<V, float>,
                  gated_forward<V, float>, gated_backward<V, float>},
          .bf16 = {activation_forward<V, bfloat16>, activation_backward<V, bfloat16>,
                   gated_forward<V, bfloat16>, gated_backward<V, bfloat16>}};
}

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
        V sum = r.x == nullptr ? V::zero() : at.load(r.x) * factor;
        if (r.residual != nullptr) sum = sum + at.load(r.residual);
        at.store(sum, r.sum);
        total = total + sum;
      });
  *r.mean = V::sum(total) * inverse_H;
  const V mean = V::set1(*r.mean);
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
                              .mean = *r.mean,
                              .rstd = *r.rstd,
                              .y = r.y,
                              .y_copy = r.y_copy});
}

// With xhat = (sum - mean) rstd and g = gamma grad_y:
//   grad_sum = rstd (g - mean(g) - xhat mean(g xhat)).
template <class V, class T>
void layer_norm_backward(const LayerNormRowBackward<T>& r) {
  const V mean = V::set1(r.mean);
  const V rstd = V::set1(r.rstd);
  V sum_g = V::zero();
  V sum_g_xhat = V::zero();
  for_each_vector<V>(
      r.H, [&](auto at) __attribute__((always_inline)) {
        const V grad_y = at.load(r.grad_y);
        const V xhat = (at.load(r.sum) - mean) * rstd;
        const V g = grad_y * at.load(r.gamma);
        sum_g = sum_g + g;
        sum_g_xhat = V::fma(g, xhat, sum_g_xhat);
        at.store(V::fma(grad_y, xhat, at.load(r.grad_gamma)), r.grad_gamma);
        if (r.grad_beta != nullptr) at.store(at.load(r.grad_beta) + grad_y, r.grad_beta);
      });
  const float inverse_H = 1.0f / static_cast<float>(r.H);
  const V mean_g = V::set1(V::sum(sum_g) * inverse_H);
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

template <class V, class T>
void add_column_sums(std::size_t rows, std::size_t columns, const T* x, std::size_t ld,
                     float* sums) {
  // Neighbouring vectors walk down together: one chain of additions waits for itself.
  constexpr std::size_t kChains = 8;
  constexpr std::size_t kTogether = kChains * V::kLanes;
  std::size_t c = 0;
  for (; c + kTogether <= columns; c += kTogether) {
    V sum[kChains];
    unroll<kChains>([&](auto i) __attribute__((always_inline)) {
      sum[i] = V::load(sums + c + i * V::kLanes);
    });
    for (std::size_t row = 0; row < rows; ++row) {
      const T* from = x + row * ld + c;
      unroll<kChains>([&](auto i) __attribute__((always_inline)) {
        sum[i] = sum[i] + V::load(from + i * V::kLanes);
      });
    }
    unroll<kChains>([&](auto i) __attribute__((always_inline)) {
      V::store(sum[i], sums + c + i * V::kLanes);
    });
  }
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
