// Internal: the blocks of int8.h, written once over a `Unit` that defines how an instruction set
// multiplies four u8 (or wider) activations with four s8 weights. No intrinsics here.
//
// A Unit has
//   V                      the vector of f32 (simd/avx2.h)
//   Element                of a quantized activation
//   Sums, zero()           s32 sums of one row and the 16 output features of a panel
//   Weights, load(bytes)   one group of a panel, 64 bytes
//   X, broadcast(four)     one group of a row
//   add_products(X, Weights, Sums)
//   to_float(Sums, zero_point, row_sums, V (&)[16 / lanes])   sum - zero_point row_sums, rounded
//   to_elements(V, zero_point, Element*, n)   whole numbers + zero_point, the first n of them
//   stored
//   opaque(Sums&), opaque(X&)   the compiler must believe that these are new
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_groups.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/unroll.h"

namespace tandem::kernels::simd {

// The sums of one row of one panel, scaled: the order of int8.h.
template <class Unit, class T>
[[gnu::always_inline]] inline void int8_scale(
    const Int8Product<T>& p, std::size_t row, std::size_t column, const typename Unit::Sums& sums,
    typename Unit::V (&values)[kInt8Panel / Unit::V::kLanes]) {
  using V = typename Unit::V;
  Unit::to_float(sums, p.row[row].zero_point, p.row_sums + column, values);
  const V scale = V::set1(p.row[row].scale);
  unroll<kInt8Panel / V::kLanes>([&](auto i) __attribute__((always_inline)) {
    values[i] = values[i] * (scale * V::load(p.scale + column + i * V::kLanes));
  });
}

// Writes one row of one panel.
template <class Unit, class T>
[[gnu::always_inline]] inline void int8_store(const Int8Product<T>& p, std::size_t row,
                                              std::size_t column, const typename Unit::Sums& sums) {
  using V = typename Unit::V;
  constexpr int kVectors = kInt8Panel / V::kLanes;
  V values[kVectors];
  int8_scale<Unit>(p, row, column, sums, values);
  unroll<kVectors>([&](auto i) __attribute__((always_inline)) {
    const std::size_t at = column + i * V::kLanes;
    if (at >= p.columns) return;
    const std::size_t n = p.columns - at;
    V y = values[i];
    T* to = p.y + row * p.ld + at;
    if (n >= V::kLanes) {
      if (p.bias != nullptr) y = y + V::load(p.bias + at);
      V::store(y, to);
    } else {
      if (p.bias != nullptr) y = y + V::load_partial(p.bias + at, n);
      V::store_partial(y, to, n);
    }
  });
}

// kRows rows times kPanels panels, over the whole reduction in registers.
template <class Unit, int kRows, int kPanels, class T>
[[gnu::always_inline]] inline void int8_block(const Int8Product<T>& p, std::size_t row,
                                              std::size_t panel) {
  typename Unit::Sums sums[kRows][kPanels];
  unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    unroll<kPanels>([&](auto v) __attribute__((always_inline)) { sums[r][v] = Unit::zero(); });
  });
  const std::byte* x = p.x + row * p.row_bytes;
  const std::int8_t* w = p.panels + panel * p.panel_bytes;
  for (std::size_t g = 0; g < p.groups; ++g) {
    typename Unit::Weights weights[kPanels];
    unroll<kPanels>([&](auto v) __attribute__((always_inline)) {
      weights[v] = Unit::load(w + v * p.panel_bytes);
    });
    unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      const typename Unit::X four = Unit::broadcast(x + r * p.row_bytes);
      unroll<kPanels>([&](auto v) __attribute__((always_inline)) {
        sums[r][v] = Unit::add_products(four, weights[v], sums[r][v]);
      });
    });
    x += kInt8Group * sizeof(typename Unit::Element);
    w += kInt8GroupBytes;
  }
  unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    if (row + r >= p.rows) return;
    unroll<kPanels>([&](auto v) __attribute__((always_inline)) {
      int8_store<Unit>(p, row + r, (panel + v) * kInt8Panel, sums[r][v]);
    });
  });
}

template <class Unit, int kRows, int kPanels, class T>
void int8_rows(const Int8Product<T>& p, std::size_t panel) {
  for_row_groups<kRows>(
      p.rows, [&](std::size_t row, auto count) __attribute__((always_inline)) {
        int8_block<Unit, count, kPanels>(p, row, panel);
      });
}

// kPanels (at most 3) at a time: they stay in the cache while all rows pass.
template <class Unit, int kRows, int kPanels, class T>
void int8_multiply(const Int8Product<T>& p) {
  const std::size_t panels = (p.columns + kInt8Panel - 1) / kInt8Panel;
  std::size_t panel = 0;
  for (; panel + kPanels <= panels; panel += kPanels) int8_rows<Unit, kRows, kPanels>(p, panel);
  if constexpr (kPanels > 2) {
    if (panel + 2 <= panels) {
      int8_rows<Unit, kRows, 2>(p, panel);
      panel += 2;
    }
  }
  if constexpr (kPanels > 1) {
    if (panel < panels) int8_rows<Unit, kRows, 1>(p, panel);
  }
}

template <class V, class T>
void int8_min_max(std::size_t count, const T* x, float* min, float* max) {
  V low = V::zero();
  V high = V::zero();
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        const V v = at.load(x);
        low = V::min(v, low);  // the second one where v is NaN
        high = V::max(v, high);
      });
  float lows[V::kLanes];
  float highs[V::kLanes];
  V::store(low, lows);
  V::store(high, highs);
  *min = 0;
  *max = 0;
  for (std::size_t i = 0; i < V::kLanes; ++i) {
    if (lows[i] < *min) *min = lows[i];
    if (highs[i] > *max) *max = highs[i];
  }
}

template <class Unit, class T>
bool int8_quantize(std::size_t count, const T* x, Int8Range range, std::byte* q) {
  using V = typename Unit::V;
  auto* to = reinterpret_cast<typename Unit::Element*>(q);
  const V scale = V::set1(range.scale);
  const float lowest = -static_cast<float>(range.zero_point);
  const V low = V::set1(lowest);
  const V high = V::set1(255.0f + lowest);
  V nans = V::zero();
  const auto step = [&](V v, std::size_t i, std::size_t n) __attribute__((always_inline)) {
    nans = V::select(V::less_equal(v, v), nans, V::set1(1.0f));
    // Clamped before it is rounded, as in int8_ref.cc; a NaN becomes `low`.
    Unit::to_elements(V::min(V::max(v / scale, low), high), range.zero_point, to + i, n);
  };
  std::size_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) step(V::load(x + i), i, V::kLanes);
  if (i < count) step(V::load_partial(x + i, count - i), i, count - i);
  return V::largest(nans) > 0.0f;
}

// The best rate of add_products on registers. Returns the multiplications and additions done.
template <class Unit, int kChains>
double int8_peak(std::size_t iterations) {
  typename Unit::Sums sums[kChains];
  unroll<kChains>([&](auto i) __attribute__((always_inline)) {
    sums[i] = Unit::zero();
    Unit::opaque(sums[i]);
  });
  alignas(64) std::int8_t bytes[kInt8GroupBytes] = {};
  __asm__ volatile("" : "+m"(bytes));  // not known to be zeros: products by them must be made
  const typename Unit::Weights weights = Unit::load(bytes);
  typename Unit::X x = Unit::broadcast(reinterpret_cast<const std::byte*>(bytes));
  for (std::size_t n = 0; n < iterations; ++n) {
    unroll<kChains>([&](auto i) __attribute__((always_inline)) {
      Unit::opaque(x);  // so that no product is shared
      sums[i] = Unit::add_products(x, weights, sums[i]);
    });
  }
  unroll<kChains>([&](auto i) __attribute__((always_inline)) { Unit::opaque(sums[i]); });
  return 2.0 * kChains * kInt8GroupBytes * static_cast<double>(iterations);
}

template <class Unit, int kRows, int kPanels, class T>
constexpr Int8Kernels::Of<T> int8_kernels_of() {
  return {.min_max = int8_min_max<typename Unit::V, T>,
          .quantize = int8_quantize<Unit, T>,
          .multiply = int8_multiply<Unit, kRows, kPanels, T>};
}

template <class Unit, int kRows, int kPanels, int kPeakChains>
constexpr Int8Kernels int8_kernels() {
  return {.element_bytes = sizeof(typename Unit::Element),
          .row_block = kRows,
          .f32 = int8_kernels_of<Unit, kRows, kPanels, float>(),
          .bf16 = int8_kernels_of<Unit, kRows, kPanels, bfloat16>(),
          .peak = int8_peak<Unit, kPeakChains>};
}

}  // namespace tandem::kernels::simd
