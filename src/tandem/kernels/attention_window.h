// Internal: which keys the blocks and rows of attention_simd.h reach. A class over `Products`, so
// that each instruction set has its own.
#pragma once

#include <cstddef>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels::simd {

template <class Products>
struct AttentionWindow {
  static constexpr std::size_t kBlock = Products::kBlock;
  static constexpr std::size_t kNr = Products::kNr;

  static std::size_t at_most(std::size_t a, std::size_t b) { return a < b ? a : b; }
  static constexpr std::size_t padded(std::size_t n) { return (n + kNr - 1) / kNr * kNr; }
  static bool reaches_all(const Window& window) {
    return window.before == kAllKeys && window.after == kAllKeys;
  }
  // The end of the keys that `row` reaches.
  template <class Head>
  static std::size_t end_of(const Head& h, std::size_t row) {
    return h.window.after == kAllKeys ? h.keys : at_most(h.keys, row + h.window.after + 1);
  }

  // The distance between rows of `n` scores.
  static constexpr std::size_t row_width(std::size_t n) { return Products::row_width(padded(n)); }

  // The keys [begin, end) that the queries of a block reach. Their panels are whole: `begin` and
  // `width`, the distance between rows of scores, are multiples of kNr.
  struct Keys {
    std::size_t begin, end, width;
  };
  template <class Head>
  static Keys keys_of_block(const Head& h, std::size_t first, std::size_t rows) {
    const std::size_t begin = (first - at_most(first, h.window.before)) / kNr * kNr;
    const std::size_t end = end_of(h, first + rows - 1);
    return end <= begin ? Keys{begin, begin, 0} : Keys{begin, end, row_width(end - begin)};
  }
  // The width of the widest block.
  static std::size_t widest(std::size_t num_keys, const Window& window) {
    const std::size_t all = row_width(num_keys);
    if (window.before == kAllKeys || window.after == kAllKeys) return all;
    return at_most(all, row_width(kBlock + window.before + window.after + kNr));
  }

  // The columns [begin, end) of a row's window in its row of scores. `start` is begin or the column
  // before it: an even key, because a dropout mask draws pairs.
  struct Columns {
    std::size_t start, begin, end;
  };
  template <class Head>
  static Columns columns_of_row(const Head& h, const Keys& keys, std::size_t row) {
    const std::size_t first = row - at_most(row, h.window.before);
    const std::size_t last = end_of(h, row);
    if (last <= first) return {0, 0, 0};
    return {(first & ~std::size_t{1}) - keys.begin, first - keys.begin, last - keys.begin};
  }
};

}  // namespace tandem::kernels::simd
