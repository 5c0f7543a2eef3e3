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

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. Overflows to infinity, underflows
// gradually, NaN stays NaN.
template <class V>
[[gnu::always_inline]] inline V exp(V x) {
  // (e^r - 1 - r) / r^2
  constexpr float kTail[] = {0.4999999345098501f, 0.16666520679084673f, 0.04166838748777796f,
                             0.008368711129007486f, 0.001381461055673698f};
  constexpr float kLn2High = 0.693145751953125f;  // few bits: n kLn2High is exact
  constexpr float kLn2Low = 1.42860682030941723212e-6f;
  x = V::max(V::set1(-105.0f),
             V::min(V::set1(90.0f), x));  // e^90 is infinity, e^-105 is zero in f32
  const V n = V::round(x * V::set1(1.44269504088896341f));
  const V r = V::fnma(n, V::set1(kLn2Low), V::fnma(n, V::set1(kLn2High), x));
  const V tail = polynomial(r, kTail) * r;
  return V::scale_by_power(V::fma(tail, r, r) + V::set1(1.0f), n);
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

// 1 / (1 + e^-x).
template <class V>
[[gnu::always_inline]] inline V sigmoid(V x) {
  return V::set1(1.0f) / (V::set1(1.0f) + exp(V::zero() - x));
}

}  // namespace tandem::kernels::simd
