// Internal: the products of attention (attention_simd.h) on AMX tiles, written once over a PairUnit
// whose `Instruction` is a class Tiles with the rounding of operands: the hardware's or its plain
// C++ emulation (amx/tile_config.h).
//
// Panels of B are those of the matrix product's tiles, and A is read where it lies: 16 rows of 16
// units are a tile. The two products that are reduced over queries would need A = P^T in rows of
// pairs. They are made as their transposes instead, dV^T = dO^T P and dK^T = Q^T dS: then P and dS
// are B, for which their rows need only be interleaved in pairs, and A is a block of dO or Q, small
// enough to be transposed. The gradients [columns, keys] are transposed once per head.
//
// The order of every sum is that of gemm_tiles.h: one TDPBF16PS for every 32 elements.
#pragma once

#include <cstddef>

#include "tandem/kernels/attention_simd.h"
#include "tandem/kernels/gemm_tiles.h"

namespace tandem::kernels::simd {

template <class PairsOfTiles>
class TileProducts {
 public:
  using Input = PairsOfTiles;
  using Unit = PairsOfTiles;
  // Gradients of keys and values are read and written once per block. Scores of 64 queries fill
  // 0.1 MB of the L2 cache at 384 keys; 32 and 128 queries are not faster.
  static constexpr std::size_t kBlock = 64;
  static constexpr std::size_t kMr = kTileRows;
  static constexpr std::size_t kNr = kTileBlock;
  static constexpr std::size_t kDepth = kTileUnits;

  static constexpr std::size_t row_width(std::size_t keys) { return keys; }
  void multiply(std::size_t rows, Extent extent, std::size_t depth, const GemmUnit* a,
                std::size_t a_stride, const GemmUnit* b, std::size_t b_depth, float* c) {
    const std::size_t columns = extent.padded;
    const std::size_t steps = depth / kTileUnits;
    for (std::size_t column = 0; column < columns; column += kTileBlock) {
      const GemmUnit* panel = b + column * b_depth;
      std::size_t row = 0;
      for (; row + kTileBlock <= rows; row += kTileBlock) {
        blocks_.template multiply<2>(steps, rows_of(a + row * a_stride, a_stride), panel,
                                     c + row * columns + column, columns, false);
      }
      if (row == rows) continue;
      blocks_.template multiply<1>(steps, rows_of(a + row * a_stride, a_stride), panel,
                                   c + row * columns + column, columns, false);
    }
    blocks_.finish();
  }

  void multiply_panel(std::size_t, std::size_t depth, const GemmUnit* a, std::size_t a_stride,
                      const GemmUnit* panel, float* c, std::size_t ldc) {
    const std::size_t steps = depth / kTileUnits;
    blocks_.template multiply<1>(steps, rows_of(a, a_stride), panel, c, ldc, false);
  }
  // V is packed a step at a time.
  void multiply_values(std::size_t, const GemmUnit* p, std::size_t p_stride,
                       const GemmOperand<bfloat16>& values, std::size_t keys, std::size_t head_dim,
                       GemmUnit* buffer, float* c, std::size_t ldc) {
    constexpr std::size_t kPanel = kTileUnits * kTileBlock;
    for (std::size_t column = 0; keys == 0 && column < head_dim; column += kTileBlock)
      blocks_.template multiply<1>(0, {}, buffer, c + column, ldc, false);
    for (std::size_t key = 0; key < keys; key += kStepReduced) {
      const std::size_t count = keys - key < kStepReduced ? keys - key : kStepReduced;
      pack_tiles_of_b<Unit>(values, 0, head_dim, key, count, kPanel, buffer);
      for (std::size_t column = 0; column < head_dim; column += kTileBlock) {
        blocks_.template multiply<1>(1, rows_of(p + key / 2, p_stride),
                                     buffer + column / kTileBlock * kPanel, c + column, ldc,
                                     key > 0);
      }
    }
  }

  static void pack_block(std::size_t rows, std::size_t head_dim, const GemmOperand<bfloat16>& block,
                         GemmUnit* to) {
    const std::size_t panel_stride = tile_steps((rows + 1) / 2) * kStepUnits;
    pack_tiles_across<Unit>(block, 0, head_dim, 0, rows, panel_stride, to);
  }
  static constexpr std::size_t pairs_at(std::size_t, std::size_t depth, std::size_t u,
                                        std::size_t key) {
    return key / kTileBlock * (depth * kTileBlock) + u * kTileBlock + key % kTileBlock;
  }
  void multiply_transposed(Extent keys, Extent columns, std::size_t depth, const GemmUnit* pairs,
                           const GemmUnit* block, float* gradient, std::size_t all_keys,
                           std::size_t first, bool accumulate) {
    const std::size_t steps = depth / kTileUnits;
    for (std::size_t key = 0; key < keys.padded; key += kTileBlock) {
      for (std::size_t column = 0; column < columns.padded; column += kTileBlock) {
        const GemmUnit* panel = block + column / kTileBlock * steps * kStepUnits;
        blocks_.template multiply<2>(steps, TileRows::of_panel(panel), pairs + key * depth,
                                     gradient + column * all_keys + first + key, all_keys,
                                     accumulate);
      }
    }
    blocks_.finish();
  }
  static const float* gradient_rows(std::size_t keys, std::size_t columns, std::size_t first,
                                    std::size_t count, const float* gradient, float* buffer) {
    auto* to = reinterpret_cast<GemmUnit*>(buffer);
    for (std::size_t key = 0; key < count; key += 8) {
      for (std::size_t column = 0; column < columns; column += 8) {
        typename Unit::V::Eight block[8];
        for (std::size_t i = 0; i < 8; ++i)
          block[i] = Unit::V::load_8(gradient + (column + i) * keys + first + key);
        Unit::V::store_transposed(block, to + key * columns + column, columns);
      }
    }
    return buffer;
  }

 private:
  using Tiles = typename Unit::Instruction;

  // A stored in rows of units.
  [[gnu::always_inline]] static TileRows rows_of(const GemmUnit* a, std::size_t stride) {
    return {.data = a, .stride = stride, .lower = kTileRows * stride, .step = kTileUnits};
  }

  Tiles tiles_{TileConfig::full()};
  TileBlocks<Tiles> blocks_{tiles_};
};

}  // namespace tandem::kernels::simd
