// Internal: the groups of rows that a micro-kernel takes at once.
#pragma once

#include <cstddef>
#include <type_traits>

namespace tandem::kernels::simd {

// Calls multiply(row, count) for the groups of `rows` rows: kRows each, and fewer in the last ones.
// A question has a dozen rows, a step of generation one: whole groups would multiply padding.
// `count` is a constant: kRows, its half, its quarter, or 1. The last group may reach beyond the
// last row. A group of one or two rows takes as long as its chains wait, so seven rows are eight.
template <int kRows, class Multiply>
[[gnu::always_inline]] inline void for_row_groups(std::size_t rows, Multiply multiply) {
  static_assert(kRows % 2 == 0);
  constexpr int kHalf = kRows / 2;
  constexpr int kQuarter = kRows / 4 > 1 ? kRows / 4 : 1;
  constexpr std::size_t kMostInParts = kRows - (kQuarter > 1 ? kQuarter : kHalf);
  std::size_t row = 0;
  for (; rows > row + kMostInParts; row += kRows)
    multiply(row, std::integral_constant<int, kRows>{});
  if (rows <= row) return;
  if (rows - row > kQuarter) {
    multiply(row, std::integral_constant<int, kHalf>{});
    row += kHalf;
  }
  if (rows <= row) return;
  if (kQuarter > 1 && rows - row > 1) {
    multiply(row, std::integral_constant<int, kQuarter>{});
  } else {
    multiply(row, std::integral_constant<int, 1>{});
  }
}

}  // namespace tandem::kernels::simd
