// Internal: how the operands of a packed product (gemm_packed.h) come into panels, written once
// over a `Unit` (gemm_units.h): all at once, or in steps between the multiplications of a
// micro-kernel.
#pragma once

#include <cstddef>
#include <cstring>

#include "tandem/kernels/gemm_packed.h"

namespace tandem::kernels::simd {

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
  const auto position_of = [&](std::size_t c) __attribute__((always_inline)) {
    return to + c / kWidth * panel_stride + u * kWidth + c % kWidth;
  };
  if constexpr (kWidth % V::kLanes == 0) {
    V::store_words(units, position_of(column));
  } else {
    static_assert(kWidth * 2 == V::kLanes);
    V::store_word_halves(units, position_of(column), position_of(column + kWidth));
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

// Packs an operand's slice as pack_across does, in small steps: one or two vectors of one row of
// units.
template <class Unit, std::size_t kWidth>
class SteppedPacking {
 public:
  using T = typename Unit::T;
  using V = typename Unit::V;

  // `what` may be null. Takes whole units of operands stored as [reduced, outer] whose rows are
  // whole vectors.
  explicit SteppedPacking(GemmPacking<T>* what) : what_(what) {
    if (what == nullptr || what->from.reduction_is_row || what->outer_count % V::kLanes != 0)
      return;
    units_ = what->count / Unit::kReduced;
    row_ = what->from.data + what->reduced * what->from.ld + what->outer;
    row_end_ = what->outer_count;
    row_step_ = Unit::kReduced * what->from.ld;
    ld_ = what->from.ld;
    panel_stride_ = what->panel_stride;
    to_ = what->to;
  }
  SteppedPacking(const SteppedPacking&) = delete;
  SteppedPacking& operator=(const SteppedPacking&) = delete;
  // Takes off what was done; a row that is not complete is left to do again.
  ~SteppedPacking() {
    if (what_ == nullptr) return;
    what_->reduced += unit_ * Unit::kReduced;
    what_->count -= unit_ * Unit::kReduced;
    what_->to += unit_ * kWidth;
  }

  [[gnu::always_inline]] inline bool done() const { return unit_ == units_; }

  [[gnu::always_inline]] inline void step() {
    constexpr std::size_t kLanes = V::kLanes;
    constexpr std::size_t kRowsAhead = 2;  // in units: 1000 cycles or so, more than memory takes
    const T* from = row_ + column_;
    for (std::size_t i = 0; i < Unit::kReduced; ++i) {
      for (std::size_t line = 0; line < 2 * kLanes; line += 64 / sizeof(T))
        __builtin_prefetch(from + kRowsAhead * row_step_ + i * ld_ + line);
    }
    if (column_ + 2 * kLanes <= row_end_) {
      typename V::Words first;
      typename V::Words second;
      Unit::across_two(from, ld_, false, first, second);
      store_across<V, kWidth>(first, column_, unit_, panel_stride_, to_);
      store_across<V, kWidth>(second, column_ + kLanes, unit_, panel_stride_, to_);
      column_ += 2 * kLanes;
    } else {
      store_across<V, kWidth>(Unit::across(from, ld_, false, kLanes), column_, unit_, panel_stride_,
                              to_);
      column_ += kLanes;
    }
    if (column_ == row_end_) {
      column_ = 0;
      row_ += row_step_;
      ++unit_;
    }
  }

 private:
  GemmPacking<T>* what_;
  const T* row_ = nullptr;
  std::size_t unit_ = 0, units_ = 0;
  std::size_t column_ = 0, row_end_ = 0;
  std::size_t ld_ = 0, row_step_ = 0, panel_stride_ = 0;
  GemmUnit* to_ = nullptr;
};

}  // namespace tandem::kernels::simd
