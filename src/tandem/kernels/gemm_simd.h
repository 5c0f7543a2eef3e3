// Internal: the blocks of the packed product, written once over an instruction set's vector type V
// and a `Unit` that defines what a 32-bit unit of the reduction is and how units are multiplied
// (gemm_units.h). No intrinsics here: V may be plain C++ (tests/emulated_cpu).
//
// The order of every sum is fixed by the Unit alone: one chain per element of C over the units of
// the reduction, in order. Slices and tiles only decide where the chain rests in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tandem/kernels/gemm_packed.h"
#include "tandem/kernels/gemm_packing.h"
#include "tandem/kernels/gemm_units.h"
#include "tandem/kernels/row_groups.h"
#include "tandem/kernels/simd/unroll.h"

namespace tandem::kernels::simd {

// Between the multiplications of a micro-kernel: nothing.
struct Nothing {};

inline constexpr std::size_t kUnitsPerStep = 8;  // of the work between them

// Units of A for one of B, which is packed as `Packed`: two f32 for a pair of bf16.
template <class Unit, class Packed>
constexpr std::size_t kUnitsOfB = Packed::kReduced / Unit::kReduced;

// c[kMr, kNv * lanes] = or += A B over `units`.
//   rows:   a + r a_stride + u,   panels: a + u a_stride + r;   b + u b_stride + column.
// Packed: how B is packed. If as pairs of bf16, `widened` gets it as other rows can read it.
// `between` does a step of other work every kUnitsPerStep units. Its loads and stores overlap with
// the multiplications, which wait for nothing but each other.
template <class Unit, int kMr, int kNv, bool kPanels, class Packed = Unit, class Between = Nothing>
[[gnu::always_inline]] inline void micro_kernel(std::size_t units, const GemmUnit* a,
                                                std::size_t a_stride, const GemmUnit* b,
                                                std::size_t b_stride, float* c, std::size_t ldc,
                                                bool accumulate, Between&& between = {},
                                                GemmUnit* widened = nullptr) {
  using V = typename Unit::V;
  constexpr std::size_t kLanes = V::kLanes;
  V sum[kMr][kNv];
  unroll<kMr>([&](auto r) __attribute__((always_inline)) {
    unroll<kNv>([&](auto v) __attribute__((always_inline)) {
      sum[r][v] = accumulate ? V::load(c + r * ldc + v * kLanes) : V::zero();
    });
  });
  constexpr std::size_t kPerB = kUnitsOfB<Unit, Packed>;
  static_assert(kPerB == 1 || !kPanels);
  // Unit `half` of those of one unit of B.
  const auto multiply_unit = [&](auto half) __attribute__((always_inline)) {
    typename V::Words panel[kNv];
    unroll<kNv>([&](auto v) __attribute__((always_inline)) {
      panel[v] = V::load_words(b + v * kLanes);
      if constexpr (kPerB > 1) {
        panel[v] = half == 0 ? V::low_half(panel[v]) : V::high_half(panel[v]);
        V::store_words(panel[v], widened + half * b_stride + v * kLanes);
      }
    });
    unroll<kMr>([&](auto r) __attribute__((always_inline)) {
      const typename V::Words x = Unit::broadcast(kPanels ? a + r : a + r * a_stride + half);
      unroll<kNv>([&](auto v) __attribute__((always_inline)) {
        sum[r][v] = Unit::multiply_add(x, panel[v], sum[r][v]);
      });
    });
  };
  const auto multiply_units = [&]() __attribute__((always_inline)) {
    unroll<kPerB>([&](auto half) __attribute__((always_inline)) { multiply_unit(half); });
    a += kPanels ? a_stride : kPerB;
    b += b_stride;
    if constexpr (kPerB > 1) widened += kPerB * b_stride;
  };
  std::size_t u = 0;
  if constexpr (!std::is_same_v<Between, Nothing>) {
    for (; u + kUnitsPerStep <= units; u += kUnitsPerStep) {
      between.step();
      for (std::size_t i = 0; i < kUnitsPerStep; i += kPerB) multiply_units();
    }
  }
  for (; u + kPerB <= units; u += kPerB) multiply_units();
  if constexpr (kPerB > 1) {
    if (u < units) multiply_unit(std::integral_constant<int, 0>{});
  }
  unroll<kMr>([&](auto r) __attribute__((always_inline)) {
    unroll<kNv>([&](auto v) __attribute__((always_inline)) {
      V::store(sum[r][v], c + r * ldc + v * kLanes);
    });
  });
}

// Fetches lines that will be written, two in each step: after a short reduction a product would
// wait for them.
class FetchForWriting {
 public:
  explicit FetchForWriting(const GemmLines& what) : what_(what) {}
  [[gnu::always_inline]] inline void step() {
    for (int i = 0; i < 2 && row_ < what_.rows; ++i) {
      __builtin_prefetch(what_.data + line_ * 64, /*for writing*/ 1, 2);
      if (++line_ < what_.lines) continue;
      line_ = 0;
      ++row_;
      what_.data += what_.stride;
    }
  }

 private:
  GemmLines what_;
  std::size_t row_ = 0;
  std::size_t line_ = 0;
};

// Between the multiplications of kMr rows: fetches the next ones, a line of each every 16 units,
// into the L1 (kCache 1) or L2 cache. The hardware does not, rows are too short and too far apart.
template <int kMr, int kCache>
struct NextRows {
  static constexpr std::size_t kUnitsOfLine = 64 / sizeof(GemmUnit);
  const GemmUnit* lines;  // lines of the next rows
  std::size_t stride;
  FetchForWriting& to_write;
  bool upper = false;  // half of the rows in one step, the others in the next
  [[gnu::always_inline]] inline void step() {
    const GemmUnit* from = lines + (upper ? kMr / 2 * stride : 0);
    for (std::size_t i = 0; i < kMr / 2; ++i)
      __builtin_prefetch(from + i * stride, /*for reading*/ 0, 4 - kCache);
    lines += upper ? kUnitsOfLine : 0;
    upper = !upper;
    to_write.step();
  }
};

// Between the multiplications of the only rows of A: fetches the panel of B that is multiplied next
// into the L2 cache, in equal parts. Each panel is read from memory once, and the hardware begins
// anew with each.
class NextPanel {
 public:
  static constexpr std::size_t kLine = 64 / sizeof(GemmUnit);
  // next: [units], or null. steps: of all rows.
  NextPanel(const GemmUnit* next, std::size_t units, std::size_t steps, FetchForWriting& to_write)
      : next_(next),
        left_(next == nullptr ? 0 : units / kLine),
        per_step_(left_ / (steps + 1) + 1),
        to_write_(to_write) {}
  [[gnu::always_inline]] inline void step() {
    for (std::size_t i = 0; i < per_step_ && left_ > 0; ++i, --left_, next_ += kLine)
      __builtin_prefetch(next_, /*for reading*/ 0, 2);
    to_write_.step();
  }

 private:
  const GemmUnit* next_;
  std::size_t left_, per_step_;
  FetchForWriting& to_write_;
};

// Both operands of the next slice, A first.
template <class Unit, int kMr, std::size_t kNr>
struct NextSlice {
  SteppedPacking<Unit, kMr> a;
  SteppedPacking<Unit, kNr> b;
  [[gnu::always_inline]] inline void step() {
    if (!a.done()) {
      a.step();
    } else if (!b.done()) {
      b.step();
    }
  }
};

// Groups of rows of A times the first kVectors vectors of B's panel at `column`.
template <class Unit, int kMr, int kVectors, std::size_t kNr>
class PanelProduct {
 public:
  [[gnu::always_inline]] PanelProduct(const GemmSlice<typename Unit::T>& slice, std::size_t column)
      : slice_(slice),
        panel_(slice.b.data + column / kNr * slice.b.panel_stride),
        tile_(slice.tile + column) {}

  const GemmUnit* panel() const { return panel_; }

  // The first rows come first: they widen a panel of pairs, for the others.
  template <class Packed, class Count>
  [[gnu::always_inline]] void multiply(std::size_t row, Count, NextPanel& next) const {
    if (kPairs<Packed> && row == 0) {
      multiply_apart<Packed, Count::value>(row, panel_, next);
    } else if constexpr (Count::value == kMr) {
      multiply_rows<Unit, kMr>(row, rest_of_panel<Packed>(), next);
    } else {
      multiply_apart<Unit, Count::value>(row, rest_of_panel<Packed>(), next);
    }
  }

  // The same, and fetches the next rows into the L1 (kCache 1) or L2 cache.
  template <class Packed, int kCache, class Count>
  [[gnu::always_inline]] void multiply_and_fetch(std::size_t row, Count count,
                                                 FetchForWriting& to_write) const {
    if (Count::value < kMr || (kPairs<Packed> && row == 0)) {
      NextPanel none(nullptr, 0, 0, to_write);
      return multiply<Packed>(row, count, none);
    }
    const std::size_t next = row + kMr < slice_.rows ? row + kMr : 0;
    multiply_rows<Unit, kMr>(
        row, rest_of_panel<Packed>(),
        NextRows<kMr, kCache>{slice_.a.data + next * slice_.a.stride, slice_.a.stride, to_write});
  }

 private:
  template <class Packed>
  static constexpr bool kPairs = kUnitsOfB<Unit, Packed> != 1;

  template <class Packed>
  [[gnu::always_inline]] const GemmUnit* rest_of_panel() const {
    return kPairs<Packed> ? slice_.widened : panel_;
  }

  // One copy of a group that a panel has once: the compiler took twice as long otherwise.
  template <class Packed, int kRows>
  [[gnu::noinline]] void multiply_apart(std::size_t row, const GemmUnit* b, NextPanel& next) const {
    multiply_rows<Packed, kRows>(row, b, next);
  }

  template <class Packed, int kRows, class Between>
  [[gnu::always_inline]] void multiply_rows(std::size_t row, const GemmUnit* b,
                                            Between&& between) const {
    micro_kernel<Unit, kRows, kVectors, false, Packed>(
        slice_.units, slice_.a.data + row * slice_.a.stride, slice_.a.stride, b, kNr,
        tile_ + row * slice_.ld, slice_.ld, slice_.accumulate, between, slice_.widened);
  }

  const GemmSlice<typename Unit::T>& slice_;
  const GemmUnit* const panel_;
  float* const tile_;
};

// All rows of A times such a panel, which stays in the L1 cache.
template <class Unit, class Packed, int kMr, int kNv, int kVectors, bool kPanels>
void multiply_panel(const GemmSlice<typename Unit::T>& slice, std::size_t column,
                    NextSlice<Unit, kMr, kNv * Unit::V::kLanes>& next_slice,
                    FetchForWriting& to_write) {
  constexpr std::size_t kNr = kNv * Unit::V::kLanes;
  const PanelProduct<Unit, kMr, kVectors, kNr> product(slice, column);
  if constexpr (kPanels) {
    for (std::size_t row = 0; row < slice.rows; row += kMr) {
      micro_kernel<Unit, kMr, kVectors, true>(
          slice.units, slice.a.data + row / kMr * slice.a.stride, kMr, product.panel(), kNr,
          slice.tile + row * slice.ld + column, slice.ld, slice.accumulate, next_slice);
    }
  } else if (slice.b_once) {
    const bool last = column + kNr >= slice.columns;
    NextPanel next(last ? slice.next_b_panels : product.panel() + slice.b.panel_stride,
                   slice.units / kUnitsOfB<Unit, Packed> * kNr,
                   (slice.rows + kMr - 1) / kMr * (slice.units / kUnitsPerStep), to_write);
    for_row_groups<kMr>(
        slice.rows, [&](std::size_t row, auto count) __attribute__((always_inline)) {
          product.template multiply<Packed>(row, count, next);
        });
  } else {
    // Rows a multiple of 4 KB apart lie in the same sets of the L1 cache, which have no room for
    // two groups of rows.
    const bool room = slice.a.stride * sizeof(GemmUnit) % 4096 != 0;
    for_row_groups<kMr>(
        slice.rows, [&](std::size_t row, auto count) __attribute__((always_inline)) {
          if (room) {
            product.template multiply_and_fetch<Packed, 1>(row, count, to_write);
          } else {
            product.template multiply_and_fetch<Packed, 2>(row, count, to_write);
          }
        });
  }
}

// The last panel is multiplied as far as it has columns: 1024 columns are 64 vectors, not 22 panels
// of 3.
template <class Unit, class Packed, int kMr, int kNv, bool kPanels>
void multiply_panels(const GemmSlice<typename Unit::T>& slice) {
  constexpr std::size_t kNr = kNv * Unit::V::kLanes;
  NextSlice<Unit, kMr, kNr> next_slice{.a = SteppedPacking<Unit, kMr>(slice.next_a),
                                       .b = SteppedPacking<Unit, kNr>(slice.next_b)};
  FetchForWriting to_write(slice.to_write);
  constexpr std::size_t kLanes = Unit::V::kLanes;
  for (std::size_t column = 0; column < slice.columns; column += kNv * kLanes) {
    const std::size_t vectors = (slice.columns - column + kLanes - 1) / kLanes;
    if (vectors >= kNv) {
      multiply_panel<Unit, Packed, kMr, kNv, kNv, kPanels>(slice, column, next_slice, to_write);
    } else if (vectors == 2) {
      multiply_panel<Unit, Packed, kMr, kNv, 2, kPanels>(slice, column, next_slice, to_write);
    } else {
      multiply_panel<Unit, Packed, kMr, kNv, 1, kPanels>(slice, column, next_slice, to_write);
    }
  }
}

template <class Unit, int kMr, int kNv>
void multiply(const GemmSlice<typename Unit::T>& slice) {
  static_assert(kNv == 3);
  if (slice.a.panels) return multiply_panels<Unit, Unit, kMr, kNv, true>(slice);
  if (slice.b.kept) return multiply_panels<Unit, typename Unit::Kept, kMr, kNv, false>(slice);
  multiply_panels<Unit, Unit, kMr, kNv, false>(slice);
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

// The rounding of a PairUnit alone: to[i] = x[i] as an operand.
template <class Unit>
void round_operands(std::size_t count, const float* x, bfloat16* to) {
  for_each_vector<Twice<typename Unit::V>>(
      count, [&](auto at)
                 __attribute__((always_inline)) { Unit::store_operand(at, at.load(x), to); });
}

// The exponential of a PairUnit alone: to[i] = 2^x[i].
template <class Unit>
void exp2_of_operands(std::size_t count, const float* x, float* to) {
  for_each_vector<typename Unit::V>(
      count, [&](auto at) __attribute__((always_inline)) { at.store(Unit::exp2(at.load(x)), to); });
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
  // A panel of B should stay in the L1 cache together with two groups of rows of A: 24 KB, with 48
  // columns 128 units. The staged data, twice, and the tile should stay together in an L2 cache of
  // 1 MB.
  constexpr std::size_t kPanelUnits = 24 * 1024 / (kNr * sizeof(GemmUnit)) / 16 * 16;
  return {.mr = kMr,
          .nr = kNr,
          .reduced_per_unit = Unit::kReduced,
          .kept_per_unit = Unit::Kept::kReduced,
          .slice_granule = 8,
          .blocks_b_ahead = {.tile_rows = 96, .tile_columns = 384, .slice_units = kPanelUnits},
          .blocks_b_staged = {.tile_rows = 192, .tile_columns = 384, .slice_units = 96},
          .stage_rows = stage_rows<Unit, kMr>,
          .pack_a = pack_across<Unit, kMr>,
          .pack_b = pack_b<Unit, kNr>,
          .pack_kept = pack_b<typename Unit::Kept, kNr>,
          .multiply = multiply<Unit, kMr, kNv>,
          .store_f32 = store_tile<Unit, float>,
          .store_bf16 = store_tile<Unit, bfloat16>};
}

}  // namespace tandem::kernels::simd
