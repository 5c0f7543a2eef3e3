// Internal: the blocks of int8.h on AMX tiles, written once over a class Tiles (amx/tile_config.h)
// and the unit of int8_simd.h that turns sums into elements of y, whose vectors have 16 lanes.
//
// Sixteen groups of a panel are a tile of the weight as they lie, and 64 quantized activations of
// 16 rows are a tile of x. y is computed in blocks of 32 rows and two panels: four tiles of sums,
// for which every step of 64 elements loads two tiles of each operand. The panels stay in the L1
// cache while all rows pass. Groups beyond the last whole step are added with the unit. A sum is
// exact, so its order is free.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/amx/peak_operands.h"
#include "tandem/kernels/amx/tile_config.h"
#include "tandem/kernels/int8_simd.h"

namespace tandem::kernels::simd {

template <class Tiles, class Unit, class T>
class Int8Tiles {
 public:
  [[gnu::always_inline]] explicit Int8Tiles(const Int8Product<T>& p)
      : p_(p), steps_(p.groups / kTileRows) {}

  [[gnu::always_inline]] void multiply() {
    const std::size_t panels = (p_.columns + kInt8Panel - 1) / kInt8Panel;
    std::size_t panel = 0;
    for (; panel + 2 <= panels; panel += 2) multiply_rows<2>(panel);
    if (panel < panels) multiply_rows<1>(panel);
    finish_rows(kBlock);
    if (p_.streamed) V::finish_streams();
  }

 private:
  using V = typename Unit::V;
  static_assert(V::kLanes == kInt8Panel);
  static constexpr std::size_t kBlock = 2 * kTileRows;  // rows or columns
  static constexpr std::size_t kSumsStride = kBlock * sizeof(std::int32_t);

  // A block whose sums are complete, and its rows that are not yet elements of y.
  struct Block {
    const std::int32_t* sums = nullptr;  // [kBlock][kBlock]
    std::size_t first = 0, row = 0, end = 0, panel = 0, panels = 0;
  };

  template <int kPanels>
  [[gnu::always_inline]] void multiply_rows(std::size_t panel) {
    std::size_t row = 0;
    for (; row + kTileRows < p_.rows; row += kBlock) multiply_block<2, kPanels>(row, panel);
    if (row < p_.rows) multiply_block<1, kPanels>(row, panel);
  }

  // While the products of a block run, the sums of the one before become elements of y.
  template <int kRowTiles, int kPanels>
  [[gnu::always_inline]] void multiply_block(std::size_t row, std::size_t panel) {
    const std::byte* x = p_.x + row * p_.row_bytes;
    const std::int8_t* w = p_.panels + panel * p_.panel_bytes;
    const std::size_t x_stride = p_.row_bytes, w_stride = p_.panel_bytes;
    const std::size_t rows_in_step = steps_ == 0 ? kBlock : (kBlock + steps_ - 1) / steps_;
    for_each_sum<kRowTiles, kPanels>([&](auto t) __attribute__((always_inline)) {
      tiles_.template zero<t>();
    });
    for (std::size_t step = 0; step < steps_; ++step) {
      tiles_.template load_once<4>(x, x_stride);
      tiles_.template load<6>(w, kInt8GroupBytes);
      tiles_.template dot_bytes<0, 4, 6>();
      if constexpr (kPanels > 1) {
        tiles_.template load<7>(w + w_stride, kInt8GroupBytes);
        tiles_.template dot_bytes<1, 4, 7>();
      }
      if constexpr (kRowTiles > 1) {
        tiles_.template load_once<5>(x + kTileRows * x_stride, x_stride);
        tiles_.template dot_bytes<2, 5, 6>();
        if constexpr (kPanels > 1) tiles_.template dot_bytes<3, 5, 7>();
      }
      x += kTileRowBytes;
      w += kTileRows * kInt8GroupBytes;
      finish_rows(rows_in_step);
    }
    finish_rows(kBlock);
    std::int32_t(&sums)[kBlock][kBlock] = sums_[buffer_];
    for_each_sum<kRowTiles, kPanels>([&](auto t) __attribute__((always_inline)) {
      tiles_.template store<t>(sums[t / 2 * kTileRows] + t % 2 * kTileRows, kSumsStride);
    });
    buffer_ = 1 - buffer_;
    const std::size_t end = row + kRowTiles * kTileRows;
    last_ = {sums[0], row, row, end < p_.rows ? end : p_.rows, panel, kPanels};
  }

  // Tiles 0 to 3 are the sums of a block: two rows of tiles, two panels.
  template <int kRowTiles, int kPanels, class Visit>
  [[gnu::always_inline]] static void for_each_sum(Visit visit) {
    unroll<2 * kRowTiles>([&](auto t) __attribute__((always_inline)) {
      if constexpr (t % 2 < kPanels) visit(t);
    });
  }

  // At most `count` rows of the block before.
  [[gnu::always_inline]] void finish_rows(std::size_t count) {
    const std::size_t end = last_.row + count < last_.end ? last_.row + count : last_.end;
    for (; last_.row < end; ++last_.row) finish_row();
  }

  [[gnu::always_inline]] void finish_row() const {
    const std::int32_t* sums = last_.sums + (last_.row - last_.first) * kBlock;
    const std::size_t column = last_.panel * kInt8Panel;
    const auto left = add_rest(Unit::load_sums(sums), last_.panel);
    if (last_.panels == 1) return int8_store<Unit>(p_, last_.row, column, left);
    const auto right = add_rest(Unit::load_sums(sums + kInt8Panel), last_.panel + 1);
    if (p_.streamed && column + kBlock <= p_.columns) {
      V::stream_two(elements(column, left), elements(column + kInt8Panel, right),
                    p_.y + last_.row * p_.ld + column);
    } else {
      int8_store<Unit>(p_, last_.row, column, left);
      int8_store<Unit>(p_, last_.row, column + kInt8Panel, right);
    }
  }

  // Those of a whole panel.
  [[gnu::always_inline]] V elements(std::size_t column, const typename Unit::Sums& sums) const {
    V values[1];
    int8_scale<Unit>(p_, last_.row, column, sums, values);
    return p_.bias == nullptr ? values[0] : values[0] + V::load(p_.bias + column);
  }

  // Adds what the steps left of the reduction.
  [[gnu::always_inline]] typename Unit::Sums add_rest(typename Unit::Sums sums,
                                                      std::size_t panel) const {
    const std::byte* x = p_.x + last_.row * p_.row_bytes;
    const std::int8_t* w = p_.panels + panel * p_.panel_bytes;
    for (std::size_t g = steps_ * kTileRows; g < p_.groups; ++g) {
      sums = Unit::add_products(Unit::broadcast(x + g * kInt8Group),
                                Unit::load(w + g * kInt8GroupBytes), sums);
    }
    return sums;
  }

  const Int8Product<T> p_;
  std::size_t steps_;
  Block last_;
  std::size_t buffer_ = 0;
  alignas(64) std::int32_t sums_[2][kBlock][kBlock];
  Tiles tiles_{TileConfig::full()};
};

// Rows and panels of a chunk stay in the L2 cache beside one another: 2 MB on all CPUs with AMX.
inline constexpr std::size_t kInt8TilesChunk = 512 << 10;

// A tile costs as much for one row as for sixteen: few rows take the unit's way.
template <class Tiles, class Unit, class T>
void int8_multiply_tiles(const Int8Product<T>& p) {
  constexpr std::size_t kFewRows = 4;
  if (p.rows <= kFewRows) return int8_multiply<Unit, 8, 3>(p);
  Int8Tiles<Tiles, Unit, T>(p).multiply();
}

// The best rate of dot_bytes(), on registers only. Returns the multiplications and additions done.
template <class Tiles>
double int8_peak_tiles(std::size_t iterations) {
  Tiles tiles(TileConfig::full());
  load_peak_operands(tiles);
  for (std::size_t i = 0; i < iterations; ++i) {
    tiles.template dot_bytes<0, 4, 6>();
    tiles.template dot_bytes<1, 4, 7>();
    tiles.template dot_bytes<2, 5, 6>();
    tiles.template dot_bytes<3, 5, 7>();
  }
  constexpr double kOperations = 2.0 * kTileRows * kInt8Panel * kTileRowBytes;
  return 4.0 * kOperations * static_cast<double>(iterations);
}

}  // namespace tandem::kernels::simd
