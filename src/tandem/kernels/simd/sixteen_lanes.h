// Internal: sums along a row run in 16 lanes on every instruction set, so that they have one order
// and f32 results the same bits on all of them. Where a vector has 8 lanes, two make one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define TANDEM_SIMD [[gnu::always_inline]] static inline

namespace tandem::kernels::simd {

// In place of V::Kept: no element is dropped.
struct AllKept {};

// Twice the lanes of V, with its interface as far as sums along rows and pairs of vectors need it:
// `low` holds the first half of the elements.
template <class V>
struct Twice {
  using Half = V;
  static constexpr std::size_t kLanes = 2 * V::kLanes;
  struct Mask {
    typename V::Mask low, high;
  };
  struct Doubles {
    typename V::Doubles low, high;
  };

  V low, high;

  // --- memory ---
  TANDEM_SIMD Twice zero() { return {V::zero(), V::zero()}; }
  TANDEM_SIMD Twice set1(float x) { return {V::set1(x), V::set1(x)}; }
  template <class T>
  TANDEM_SIMD Twice load(const T* p) {
    return {V::load(p), V::load(p + V::kLanes)};
  }
  template <class T>
  TANDEM_SIMD Twice load_partial(const T* p, std::size_t n) {
    if (n <= V::kLanes) return {V::load_partial(p, n), V::zero()};
    return {V::load(p), V::load_partial(p + V::kLanes, n - V::kLanes)};
  }
  template <class T>
  TANDEM_SIMD void store(Twice a, T* p) {
    V::store(a.low, p);
    V::store(a.high, p + V::kLanes);
  }
  template <class T>
  TANDEM_SIMD void store_partial(Twice a, T* p, std::size_t n) {
    if (n <= V::kLanes) return V::store_partial(a.low, p, n);
    V::store(a.low, p);
    V::store_partial(a.high, p + V::kLanes, n - V::kLanes);
  }

  // --- arithmetic ---
  [[gnu::always_inline]] friend inline Twice operator+(Twice a, Twice b) {
    return {a.low + b.low, a.high + b.high};
  }
  [[gnu::always_inline]] friend inline Twice operator-(Twice a, Twice b) {
    return {a.low - b.low, a.high - b.high};
  }
  [[gnu::always_inline]] friend inline Twice operator*(Twice a, Twice b) {
    return {a.low * b.low, a.high * b.high};
  }
  TANDEM_SIMD Twice fma(Twice a, Twice b, Twice c) {
    return {V::fma(a.low, b.low, c.low), V::fma(a.high, b.high, c.high)};
  }
  TANDEM_SIMD Twice fnma(Twice a, Twice b, Twice c) {
    return {V::fnma(a.low, b.low, c.low), V::fnma(a.high, b.high, c.high)};
  }
  TANDEM_SIMD Twice max(Twice a, Twice b) { return {V::max(a.low, b.low), V::max(a.high, b.high)}; }
  TANDEM_SIMD Twice round(Twice a) { return {V::round(a.low), V::round(a.high)}; }
  TANDEM_SIMD Twice scale_by_power(Twice a, Twice n) {
    return {V::scale_by_power(a.low, n.low), V::scale_by_power(a.high, n.high)};
  }
  TANDEM_SIMD Mask lanes_below(std::size_t n) {
    const std::size_t beyond = n > V::kLanes ? n - V::kLanes : 0;
    return {V::lanes_below(n), V::lanes_below(beyond)};
  }
  TANDEM_SIMD Twice select(Mask m, Twice yes, Twice no) {
    return {V::select(m.low, yes.low, no.low), V::select(m.high, yes.high, no.high)};
  }

  // The kept elements, and zeros for the others.
  [[gnu::always_inline]] Twice zero_unless(const typename V::Kept& kept) const {
    return {V::keep_first(kept, low), V::keep_second(kept, high)};
  }
  [[gnu::always_inline]] Twice zero_unless(AllKept) const { return *this; }

  // --- across lanes: halves, then as V ---
  TANDEM_SIMD float sum(Twice a) { return V::sum(a.low + a.high); }
  TANDEM_SIMD Doubles zero_doubles() { return {V::zero_doubles(), V::zero_doubles()}; }
  TANDEM_SIMD Doubles add_squares(Twice a, Doubles total) {
    total = {V::add_low_squares(a.low, total.low), V::add_high_squares(a.low, total.high)};
    return {V::add_low_squares(a.high, total.low), V::add_high_squares(a.high, total.high)};
  }
  TANDEM_SIMD double sum(Doubles a) { return V::sum(V::add(a.low, a.high)); }
};

template <class V>
using SixteenLanes = std::conditional_t<V::kLanes == 16, V, Twice<V>>;

}  // namespace tandem::kernels::simd

#undef TANDEM_SIMD
