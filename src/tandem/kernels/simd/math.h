// Internal: elementary functions over an instruction set's vector of f32, at most 2 ulp from the
// exact value (kernels_test measures them). Polynomials are minimax fits made with the Remez
// algorithm for the intervals named.
#pragma once

#include "tandem/kernels/simd/unroll.h"

namespace tandem::kernels::simd {

// c[0] + c[1] x + ... (Horner).
template <class V, int kCount>
[[gnu::always_inline]] inline V polynomial(V x, const float (&c)[kCount]) {
  V sum = V::set1(c[kCount - 1]);
  unroll<kCount - 1>([&](auto i) __attribute__((always_inline)) {
    sum = V::fma(sum, x, V::set1(c[kCount - 2 - i]));
  });
  return sum;
}

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2, for x in [-106, 90]. Overflows to
// infinity, underflows gradually, NaN stays NaN.
template <class V>
[[gnu::always_inline]] inline V exp_within(V x) {
  // (e^r - 1 - r) / r^2
  constexpr float kTail[] = {0.4999999345098501f, 0.16666520679084673f, 0.04166838748777796f,
                             0.008368711129007486f, 0.001381461055673698f};
  constexpr float kLn2High = 0.693145751953125f;  // few bits: n kLn2High is exact
  constexpr float kLn2Low = 1.42860682030941723212e-6f;
  const V n = V::round(x * V::set1(1.44269504088896341f));
  const V r = V::fnma(n, V::set1(kLn2Low), V::fnma(n, V::set1(kLn2High), x));
  const V tail = polynomial(r, kTail) * r;
  return V::scale_by_power(V::fma(tail, r, r) + V::set1(1.0f), n);
}

// e^x for any x: e^90 is infinity, e^-105 is zero in f32.
template <class V>
[[gnu::always_inline]] inline V exp(V x) {
  return exp_within(V::max(V::set1(-105.0f), V::min(V::set1(90.0f), x)));
}

// 2^y for y < 128, and 2^-126 for y below -126; NaN stays NaN: 2^n (1 + f Q(f)) with n = round(y)
// and f = y - n, which is exact.
// Where a factor of y can take over the logarithm of 2, this is shorter than exp: f needs no second
// step. Q is evaluated in pairs of terms, for chains of operations that wait for each other are
// what it costs.
template <class V>
[[gnu::always_inline]] inline V exp2_below(V y) {
  constexpr float kQ[] = {0.6931472f,   0.24022648f,   0.055503324f,
                          0.009618437f, 0.0013398875f, 0.00015353362f};
  y = V::max(V::set1(-126.0f), y);
  const V n = V::round(y);
  const V f = y - n;
  const V square = f * f;
  const auto pair = [&](int i) __attribute__((always_inline)) {
    return V::fma(f, V::set1(kQ[i + 1]), V::set1(kQ[i]));
  };
  const V q = V::fma(square, V::fma(square, pair(4), pair(2)), pair(0));
  return V::scale_normal(V::fma(f, q, V::set1(1.0f)), n);
}

// 2^y for y < 128 with a relative error of 3.5e-6, for results that are rounded to bf16; NaN stays
// NaN. 2^floor(y) P(y - floor(y)): AVX-512 has both floors in its instructions. P is exact at 0 and
// 1, so powers of whole numbers are exact and values on both sides of them are close.
template <class V>
[[gnu::always_inline]] inline V short_exp2_below(V y) {
  constexpr float kP[] = {1.0f, 0.693032146f, 0.241379768f, 0.0520323701f, 0.0135557475f};
  return V::scale_by_floor(polynomial(V::above_floor(y), kP), y);
}

// 2^y for |y| < 250 with a relative error of 3.5e-6, for results that are rounded to bf16; NaN
// stays NaN: 2^n P(f) with n = round(y) and f = y - n, which is exact. P is exact at 0.
template <class V>
[[gnu::always_inline]] inline V short_exp2(V y) {
  constexpr float kP[] = {1.0f, 6.931241155e-01f, 2.402410358e-01f, 5.590687692e-02f,
                          9.582700208e-03f};
  const V n = V::round(y);
  return V::scale_by_power(polynomial(y - n, kP), n);
}

// erf(x) = x + x P(x^2) for |x| < 0.93, otherwise sign(x) (1 - e^(-t Q(t))) with t = min(|x|, 4):
// erf(4) rounds to 1.
template <class V>
[[gnu::always_inline]] inline V erf(V x) {
  constexpr float kNear[] = {0.12837914769088313f,  -0.37612481100177375f,
                             0.11281682542175085f,  -0.026761719901604322f,
                             0.004985940638748224f, -0.0005953741866776582f};
  // -log(erfc(t)) / t on [0.93, 4]
  constexpr float kFar[] = {1.1286542176926044f,    0.6351281028993353f,   0.10627519695087416f,
                            -0.023795011398132608f, 0.003658011983189329f, -0.00032662319519315814f,
                            1.1612356000513582e-05f};
  const V near = V::fma(x, polynomial(x * x, kNear), x);
  const V t = V::min(V::set1(4.0f), V::abs(x));
  const V far = V::set1(1.0f) - exp(V::zero() - t * polynomial(t, kFar));
  return V::select(V::less_equal(V::set1(0.93f), t), V::copy_sign(far, x), near);
}

// The lower tail of the normal distribution at t >= 0: its density phi(t) = e^(-t^2/2) / sqrt(2 pi)
// and Phi(-t) = e^(-t^2/2) M(t), both from one exponential. M is Mills' ratio over sqrt(2 pi), a
// smooth function that falls from 1/2 like 1/t. The polynomial is a fit on [0, 6.5] weighted by
// e^(-0.4 t^2): what it adds to Phi is below 1.4e-8 everywhere, and relative to Phi less than 1e-5
// for t <= 3, 1e-2 for t <= 5.5. Both are zero beyond kTailEnd, where e^(-t^2/2) is.
template <class V>
struct NormalTail {
  V below;    // Phi(-t)
  V density;  // phi(t)
};

inline constexpr float kTailEnd = 14.5f;
inline constexpr float kInverseSqrt2Pi = 0.39894228040143268f;

// t in [0, kTailEnd], or NaN.
template <class V>
[[gnu::always_inline]] inline NormalTail<V> normal_tail(V t) {
  constexpr float kMills[] = {0.5f,
                              -3.989415169e-01f,
                              2.499847412e-01f,
                              -1.328740269e-01f,
                              6.212593243e-02f,
                              -2.582507581e-02f,
                              9.392395616e-03f,
                              -2.867889125e-03f,
                              6.941539468e-04f,
                              -1.245986787e-04f,
                              1.528509711e-05f,
                              -1.129050020e-06f,
                              3.754841416e-08f};
  const V bell = exp_within(t * t * V::set1(-0.5f));
  return {bell * polynomial(t, kMills), bell * V::set1(kInverseSqrt2Pi)};
}

// The same for results that are rounded to bf16, with a shorter exponential and polynomial: what it
// adds to Phi is below 3e-5 everywhere, and relative to Phi less than 6e-5 for t <= 3, 3e-4 for
// t <= 4. The weight of the fit falls from t = 3 on, with e^(-0.4 t^2).
// M and bell: Phi(-t) = bell M, phi(t) = bell kInverseSqrt2Pi.
template <class V>
struct ShortNormalTail {
  V bell, mills;
};

template <class V>
[[gnu::always_inline]] inline ShortNormalTail<V> short_normal_tail(V t) {
  constexpr float kMills[] = {5.000000000e-01f,  -3.984096646e-01f, 2.459850907e-01f,
                              -1.219566092e-01f, 4.678389803e-02f,  -1.293392293e-02f,
                              2.359565580e-03f,  -2.499074908e-04f, 1.151827746e-05f};
  constexpr float kHalfLog2E = 0.72134752044448170f;
  return {short_exp2(t * t * V::set1(-kHalfLog2E)), polynomial(t, kMills)};
}

// s = 1 / (1 + e^-x) and 1 - s: both from e^-|x|, so that the smaller one is as good as the larger.
template <class V>
struct Sigmoid {
  V value;  // s
  V rest;   // 1 - s
};

template <class V>
[[gnu::always_inline]] inline Sigmoid<V> sigmoid(V x) {
  const V bell = exp_within(V::max(V::set1(-105.0f), V::zero() - V::abs(x)));
  const V larger = V::set1(1.0f) / (V::set1(1.0f) + bell);
  const V smaller = bell * larger;
  const auto negative = V::less(x, V::zero());
  return {V::select(negative, smaller, larger), V::select(negative, larger, smaller)};
}

// tanh(x) = x + x^3 P(x^2) for |x| < 0.625, otherwise sign(x) (1 - b) / (1 + b) with b = e^(-2|x|).
template <class V>
[[gnu::always_inline]] inline V tanh(V x) {
  constexpr float kNear[] = {-0.3333328068256378f, 0.13331441581249237f, -0.05373971536755562f,
                             0.0206390842795372f, -0.005704984534531832f};
  const V t = V::abs(x);
  const V square = x * x;
  const V near = V::fma(square * x, polynomial(square, kNear), x);
  const V bell = exp_within(V::max(V::set1(-105.0f), t * V::set1(-2.0f)));
  const V far = (V::set1(1.0f) - bell) / (V::set1(1.0f) + bell);
  return V::select(V::less_equal(V::set1(0.625f), t), V::copy_sign(far, x), near);
}

}  // namespace tandem::kernels::simd
