// Internal: the blocks of the packed product, written once over an instruction set's vector type V
// and a `Unit` that says what a 32-bit unit of the reduction is and how units are multiplied:
// FloatUnit or PairUnit below. No intrinsics here: V may be plain C++ (simd/emulated.h).
//
// The order of every sum is fixed by the Unit alone: one chain per element of C over the units of
// the reduction, in order. Slices and tiles only decide where the chain rests in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tandem/kernels/gemm_packed.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/unroll.h"

namespace tandem::kernels::simd {

// Cache lines to fetch, one with each unit of the reduction.
struct Strip {
  const std::byte* line = nullptr;
  std::size_t stride = 0;
};

// c[kMr, kNv * lanes] = or += A B over `units`.
//   rows:   a + r a_stride + u,   panels: a + u a_stride + r;   b + u b_stride + column.
template <class Unit, int kMr, int kNv, bool kPanels, bool kFetches = false>
[[gnu::always_inline]] inline void micro_kernel(std::size_t units, const GemmUnit* a,
                                                std::size_t a_stride, const GemmUnit* b,
                                                std::size_t b_stride, float* c, std::size_t ldc,
                                                bool accumulate, Strip strip = {}) {
  using V = typename Unit::V;
  constexpr std::size_t kLanes = V::kLanes;
  V sum[kMr][kNv];
  unroll<kMr>([&](auto r) __attribute__((always_inline)) {
    unroll<kNv>([&](auto v) __attribute__((always_inline)) {
      sum[r][v] = accumulate ? V::load(c + r * ldc + v * kLanes) : V::zero();
    });
  });
  for (std::size_t u = 0; u < units; ++u) {
    if constexpr (kFetches) {
      __builtin_prefetch(strip.line, 0, 2);  // into the L2 cache
      strip.line += strip.stride;
    }
    typename V::Words panel[kNv];
    unroll<kNv>([&](auto v)
                    __attribute__((always_inline)) { panel[v] = V::load_words(b + v * kLanes); });
    unroll<kMr>([&](auto r) __attribute__((always_inline)) {
      const typename V::Words x = Unit::broadcast(kPanels ? a + r : a + r * a_stride);
      unroll<kNv>([&](auto v) __attribute__((always_inline)) {
        sum[r][v] = Unit::multiply_add(x, panel[v], sum[r][v]);
      });
    });
    a += kPanels ? a_stride : 1;
    b += b_stride;
  }
  unroll<kMr>([&](auto r) __attribute__((always_inline)) {
    unroll<kNv>([&](auto v) __attribute__((always_inline)) {
      V::store(sum[r][v], c + r * ldc + v * kLanes);
    });
  });
}

// The next slice's lines as strips (columns of lines, at most `units` long), spread over the calls of micro-kernels.
class Strips {
 public:
  Strips(const GemmAhead (&ahead)[2], std::size_t units, std::size_t calls)
      : ahead_(ahead), units_(units), calls_(calls) {
    for (std::size_t i = 0; i < 2; ++i) {  // an empty product has no units, and nothing ahead
      of_[i] = ahead[i].lines == 0 ? 0 : ahead[i].lines * ((ahead[i].rows + units - 1) / units);
    }
  }
  // What the next call fetches, if it should.
  void next(Strip& strip) {
    const std::size_t all = of_[0] + of_[1];
    const bool due = given_ < all && given_ * calls_ <= call_ * all;
    ++call_;
    if (!due) return;
    const bool first = given_ < of_[0];
    const GemmAhead& ahead = ahead_[first ? 0 : 1];
    const std::size_t index = first ? given_ : given_ - of_[0];
    ++given_;
    strip = {ahead.data + index / ahead.lines * units_ * ahead.stride + index % ahead.lines * 64,
             ahead.stride};
  }

 private:
  const GemmAhead (&ahead_)[2];
  std::size_t units_;
  std::size_t calls_;
  std::size_t of_[2];
  std::size_t call_ = 0;
  std::size_t given_ = 0;
};

// One panel of B at a time: it stays in the L1 cache while all rows of A pass.
template <class Unit, int kMr, int kNv, bool kPanels, bool kFetches>
void multiply_panels(const GemmSlice& slice) {
  constexpr std::size_t kNr = kNv * Unit::V::kLanes;
  const std::size_t a_stride = kPanels ? kMr : slice.a.stride;
  Strips strips(slice.ahead, slice.units, slice.rows / kMr * (slice.columns / kNr));
  for (std::size_t column = 0; column < slice.columns; column += kNr) {
    const GemmUnit* panel = slice.b.data + column / kNr * slice.b.panel_stride;
    for (std::size_t row = 0; row < slice.rows; row += kMr) {
      const GemmUnit* rows_of_a = slice.a.data + (kPanels ? row / kMr : row) * slice.a.stride;
      // Calls without a strip fetch again what they read: one loop is faster than two.
      Strip strip{reinterpret_cast<const std::byte*>(rows_of_a), 0};
      if constexpr (kFetches) strips.next(strip);
      micro_kernel<Unit, kMr, kNv, kPanels, kFetches>(slice.units, rows_of_a, a_stride, panel, kNr,
                                                      slice.tile + row * slice.ld + column,
                                                      slice.ld, slice.accumulate, strip);
    }
  }
}

template <class Unit, int kMr, int kNv>
void multiply(const GemmSlice& slice) {
  const bool fetches = slice.ahead[0].lines + slice.ahead[1].lines != 0;
  const auto f = slice.a.panels ? (fetches ? multiply_panels<Unit, kMr, kNv, true, true>
                                           : multiply_panels<Unit, kMr, kNv, true, false>)
                                : (fetches ? multiply_panels<Unit, kMr, kNv, false, true>
                                           : multiply_panels<Unit, kMr, kNv, false, false>);
  f(slice);
}

// Rows of A whose reduction is contiguous.
template <class Unit, int kMr>
void stage_rows(const GemmOperand<typename Unit::T>& from, std::size_t outer,
                std::size_t outer_count, std::size_t reduced, std::size_t count, std::size_t stride,
                GemmUnit* to) {
  const std::size_t units = (count + Unit::kReduced - 1) / Unit::kReduced;
  for (std::size_t i = 0; i < outer_count; ++i) {
    Unit::stage_row(from.data + (outer + i) * from.ld + reduced, count, to + i * stride);
  }
  const std::size_t padded = (outer_count + kMr - 1) / kMr * kMr;
  for (std::size_t i = outer_count; i < padded; ++i)
    std::memset(to + i * stride, 0, units * sizeof(GemmUnit));
}

// Writes one vector of neighbouring units, beginning at `column`, to the panels they belong to.
template <class V, std::size_t kWidth>
[[gnu::always_inline]] inline void store_across(typename V::Words units, std::size_t column,
                                                std::size_t u, std::size_t panel_stride,
                                                GemmUnit* to) {
  const auto place = [&](std::size_t c) __attribute__((always_inline)) {
    return to + c / kWidth * panel_stride + u * kWidth + c % kWidth;
  };
  if constexpr (kWidth % V::kLanes == 0) {
    V::store_words(units, place(column));
  } else {
    static_assert(kWidth * 2 == V::kLanes);
    V::store_word_halves(units, place(column), place(column + kWidth));
  }
}

// Panels [units][kWidth] from a matrix stored as [reduced, outer]: neighbours in a panel are
// neighbours in memory. The rows of the source are read from end to end, one (or one pair) after
// the other. `to` has room for panels beyond the last one written: when two panels share a vector,
// both are.
template <class Unit, std::size_t kWidth>
void pack_across(const GemmOperand<typename Unit::T>& from, std::size_t outer,
                 std::size_t outer_count, std::size_t reduced, std::size_t count,
                 std::size_t panel_stride, GemmUnit* to) {
  using V = typename Unit::V;
  constexpr std::size_t kLanes = V::kLanes;
  constexpr std::size_t kStep = kWidth > kLanes ? kWidth : kLanes;
  constexpr std::size_t kRowsAhead = 8;  // the hardware does not prefetch from row to row
  for (std::size_t r = 0; r < count; r += Unit::kReduced) {
    const auto* row = from.data + (reduced + r) * from.ld + outer;
    const bool last = r + 1 == count;  // with two elements per unit: the second one is padding
    const std::size_t u = r / Unit::kReduced;
    std::size_t c = 0;
    for (; c + 2 * kLanes <= outer_count; c += 2 * kLanes) {
      constexpr std::size_t kLine = 64 / sizeof(*row);
      for (std::size_t i = 0; i < Unit::kReduced; ++i) {
        for (std::size_t line = 0; line < 2 * kLanes; line += kLine)
          __builtin_prefetch(row + c + line + (kRowsAhead + i) * from.ld);
      }
      typename V::Words first;
      typename V::Words second;
      Unit::across_two(row + c, from.ld, last, first, second);
      store_across<V, kWidth>(first, c, u, panel_stride, to);
      store_across<V, kWidth>(second, c + kLanes, u, panel_stride, to);
    }
    for (; c + kLanes <= outer_count; c += kLanes)
      store_across<V, kWidth>(Unit::across(row + c, from.ld, last, kLanes), c, u, panel_stride, to);
    for (; c % kStep != 0 || c < outer_count; c += kLanes) {
      const std::size_t given = c < outer_count ? outer_count - c : 0;
      store_across<V, kWidth>(Unit::across(row + (given == 0 ? 0 : c), from.ld, last, given), c, u,
                              panel_stride, to);
    }
  }
}

// Panels [units][kWidth] from a matrix stored as [outer, reduced]: a transposition of units, in
// blocks of 8 x 8 where they are whole.
template <class Unit, std::size_t kWidth>
void pack_along(const GemmOperand<typename Unit::T>& from, std::size_t outer,
                std::size_t outer_count, std::size_t reduced, std::size_t count,
                std::size_t panel_stride, GemmUnit* to) {
  static_assert(kWidth % 8 == 0);
  const std::size_t whole_units = count / Unit::kReduced;
  const std::size_t units = (count + Unit::kReduced - 1) / Unit::kReduced;
  for (std::size_t first = 0; first < outer_count; first += kWidth) {
    GemmUnit* panel = to + first / kWidth * panel_stride;
    for (std::size_t c = 0; c < kWidth; c += 8) {
      const auto* rows = from.data + (outer + first + c) * from.ld + reduced;
      const std::size_t given = first + c >= outer_count
                                    ? 0
                                    : (outer_count - first - c < 8 ? outer_count - first - c : 8);
      std::size_t u = 0;
      for (; given == 8 && u + 8 <= whole_units; u += 8) {
        Unit::transpose_8x8(rows + u * Unit::kReduced, from.ld, panel + u * kWidth + c, kWidth);
      }
      for (; u < units; ++u) {
        for (std::size_t i = 0; i < 8; ++i) {
          panel[u * kWidth + c + i] =
              i < given
                  ? Unit::unit(rows + i * from.ld + u * Unit::kReduced, count - u * Unit::kReduced)
                  : 0;
        }
      }
    }
  }
}

template <class Unit, std::size_t kWidth>
void pack_b(const GemmOperand<typename Unit::T>& from, std::size_t outer, std::size_t outer_count,
            std::size_t reduced, std::size_t count, std::size_t panel_stride, GemmUnit* to) {
  const auto f = from.reduction_is_row ? pack_along<Unit, kWidth> : pack_across<Unit, kWidth>;
  f(from, outer, outer_count, reduced, count, panel_stride, to);
}

// c = (c +) tile + bias.
template <class Unit, class Out>
void store_tile(std::size_t rows, std::size_t columns, const float* tile, std::size_t ld_tile,
                const float* bias, bool accumulate, Out* c, std::size_t ld) {
  using V = typename Unit::V;
  constexpr std::size_t kLanes = V::kLanes;
  for (std::size_t i = 0; i < rows; ++i) {
    const float* from = tile + i * ld_tile;
    Out* to = c + i * ld;
    std::size_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
      V sum = V::load(from + j);
      if (bias != nullptr) sum = sum + V::load(bias + j);
      if (accumulate) sum = V::load(to + j) + sum;
      V::store(sum, to + j);
    }
    if (j == columns) continue;
    const std::size_t rest = columns - j;
    V sum = V::load_partial(from + j, rest);
    if (bias != nullptr) sum = sum + V::load_partial(bias + j, rest);
    if (accumulate) sum = V::load_partial(to + j, rest) + sum;
    V::store_partial(sum, to + j, rest);
  }
}

// A unit is one f32; bf16 operands are widened on the way in.
template <class Vector, class Stored>
struct FloatUnit {
  using V = Vector;
  using T = Stored;
  using Words = typename V::Words;
  static constexpr std::size_t kReduced = 1;

  [[gnu::always_inline]] static inline Words broadcast(const GemmUnit* p) {
    return V::broadcast(p);
  }
  [[gnu::always_inline]] static inline V multiply_add(Words a, Words b, V sum) {
    return V::fma(V::from_words(a), V::from_words(b), sum);
  }
  static void stage_row(const T* from, std::size_t count, GemmUnit* to) {
    auto* floats = reinterpret_cast<float*>(to);
    std::size_t i = 0;
    for (; i + V::kLanes <= count; i += V::kLanes) V::store(V::load(from + i), floats + i);
    if (i < count) V::store_partial(V::load_partial(from + i, count - i), floats + i, count - i);
  }
  [[gnu::always_inline]] static inline Words across(const T* row, std::size_t, bool,
                                                    std::size_t n) {
    return V::as_words(n == V::kLanes ? V::load(row) : V::load_partial(row, n));
  }
  [[gnu::always_inline]] static inline void across_two(const T* row, std::size_t, bool,
                                                       Words& first, Words& second) {
    first = V::as_words(V::load(row));
    second = V::as_words(V::load(row + V::kLanes));
  }
  // An element that a later product reads as an operand.
  template <class Place>
  [[gnu::always_inline]] static inline void store_operand(Place at, V x, float* to) {
    at.store(x, to);
  }
  static GemmUnit unit(const T* p, std::size_t) {
    GemmUnit u = 0;
    if constexpr (sizeof(T) == sizeof(u)) {
      std::memcpy(&u, p, sizeof(u));
    } else {
      u = static_cast<GemmUnit>(p->bits) << 16;
    }
    return u;
  }
  [[gnu::always_inline]] static inline void transpose_8x8(const T* rows, std::size_t ld,
                                                          GemmUnit* to, std::size_t ld_to) {
    typename V::Eight block[8];
    for (std::size_t i = 0; i < 8; ++i) block[i] = V::load_8(rows + i * ld);
    V::store_transposed(block, to, ld_to);
  }
};

// A unit is a pair of bf16 that follow one another in the reduction, the first one in the low half.
// `Dot` is the instruction: Dot::dot(a, b, sum) adds both products of every lane to its f32 sum, or
// the tiles of amx/tile_config.h. Dot::rounded(x) is what store() writes as 16 operands.
template <class Vector, class Dot>
struct PairUnit {
  using V = Vector;
  using T = bfloat16;
  using Words = typename V::Words;
  using Instruction = Dot;
  static constexpr std::size_t kReduced = 2;

  [[gnu::always_inline]] static inline Words broadcast(const GemmUnit* p) {
    return V::broadcast(p);
  }
  [[gnu::always_inline]] static inline V multiply_add(Words a, Words b, V sum) {
    return Dot::dot(a, b, sum);
  }
  static void stage_row(const bfloat16* from, std::size_t count, GemmUnit* to) {
    std::memcpy(to, from, count * sizeof(bfloat16));
    if (count % 2 != 0) reinterpret_cast<bfloat16*>(to)[count] = {};
  }
  [[gnu::always_inline]] static inline Words across(const bfloat16* row, std::size_t ld, bool last,
                                                    std::size_t n) {
    return V::interleave(row, last ? nullptr : row + ld, n);
  }
  [[gnu::always_inline]] static inline void across_two(const bfloat16* row, std::size_t ld,
                                                       bool last, Words& first, Words& second) {
    V::interleave_two(row, last ? nullptr : row + ld, first, second);
  }
  template <class Place>
  [[gnu::always_inline]] static inline void store_operand(Place at, V x, bfloat16* to) {
    at.store(Dot::rounded(x), to);
  }
  static GemmUnit unit(const bfloat16* p, std::size_t count) {
    return p[0].bits | (count < 2 ? 0u : static_cast<GemmUnit>(p[1].bits) << 16);
  }
  [[gnu::always_inline]] static inline void transpose_8x8(const bfloat16* rows, std::size_t ld,
                                                          GemmUnit* to, std::size_t ld_to) {
    typename V::Eight block[8];
    for (std::size_t i = 0; i < 8; ++i)
      block[i] = V::load_8(reinterpret_cast<const float*>(rows + i * ld));
    V::store_transposed(block, to, ld_to);
  }
};

// The rounding of a PairUnit alone: to[i] = x[i] as an operand; counts are multiples of the lanes.
template <class Unit>
void round_operands(std::size_t count, const float* x, bfloat16* to) {
  for (std::size_t i = 0; i < count; i += Unit::V::kLanes)
    Unit::store_operand(Whole<typename Unit::V>{i}, Unit::V::load(x + i), to);
}

// The instruction of a PairUnit alone: sums[i] += the dot product of the pairs a[i] and b[i].
template <class Unit>
void pair_dots(std::size_t count, const GemmUnit* a, const GemmUnit* b, float* sums) {
  using V = typename Unit::V;
  for (std::size_t i = 0; i < count; i += V::kLanes) {
    V::store(Unit::multiply_add(V::load_words(a + i), V::load_words(b + i), V::load(sums + i)),
             sums + i);
  }
}

// Independent chains that keep all multiply-add units busy and, with one more operand, still fit
// into the registers: AVX2 has 16, AVX-512 32.
template <class V>
constexpr int kPeakChains = V::kLanes > 8 ? 16 : 12;

// The best rate of multiply_add on registers. Returns the FLOPs done.
template <class Unit>
double peak(std::size_t iterations) {
  using V = typename Unit::V;
  constexpr int kChains = kPeakChains<V>;
  V sum[kChains];
  // The compiler must believe that the chains differ and that `a` is new in every round; all are
  // zero.
  unroll<kChains>([&](auto i) __attribute__((always_inline)) {
    sum[i] = V::zero();
    __asm__ volatile("" : "+v"(sum[i].v));
  });
  typename V::Words a = V::words(0);
  for (std::size_t n = 0; n < iterations; ++n) {
    __asm__ volatile("" : "+v"(a));
    unroll<kChains>([&](auto i) __attribute__((always_inline)) {
      sum[i] = Unit::multiply_add(a, a, sum[i]);
    });
  }
  V total = V::zero();
  unroll<kChains>([&](auto i) __attribute__((always_inline)) { total = total + sum[i]; });
  const double flops = 2.0 * kChains * V::kLanes * Unit::kReduced * static_cast<double>(iterations);
  return flops + static_cast<double>(V::sum(total));
}

template <class Unit, int kMr, int kNv>
constexpr PackedGemmOf<typename Unit::T> packed_gemm_of() {
  constexpr std::size_t kNr = kNv * Unit::V::kLanes;
  // A B panel of a slice should stay in the L1 cache beside some rows of A: 208 units x 48 columns
  // are 40 KB. The tile, a slice of A and, when B is packed slice by slice, a slice of B and what
  // the next two are packed from should stay together in an L2 cache of 1 MB.
  constexpr std::size_t kPanelUnits = 40 * 1024 / (kNr * sizeof(GemmUnit)) / 16 * 16;
  return {.mr = kMr,
          .nr = kNr,
          .reduced_per_unit = Unit::kReduced,
          .slice_granule = 8,
          .blocks_b_ahead = {.tile_rows = 48, .tile_columns = 384, .slice_units = kPanelUnits},
          .blocks_b_staged = {.tile_rows = 192, .tile_columns = 384, .slice_units = 96},
          .every_b_ahead = false,
          .stage_rows = stage_rows<Unit, kMr>,
          .pack_a = pack_across<Unit, kMr>,
          .pack_b = pack_b<Unit, kNr>,
          .multiply = multiply<Unit, kMr, kNv>,
          .store_f32 = store_tile<Unit, float>,
          .store_bf16 = store_tile<Unit, bfloat16>};
}

}  // namespace tandem::kernels::simd
