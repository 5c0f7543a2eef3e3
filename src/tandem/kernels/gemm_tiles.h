// Internal: the packed product's blocks on AMX tiles, written once over a PairUnit whose
// `Instruction` is a class Tiles: the hardware's or its plain C++ emulation (amx/tile_config.h).
//
// C is computed in blocks of 32 x 32, four tiles of sums that stay in registers over a slice of the
// reduction; every step of 32 elements loads two tiles of A and two of B and runs four dot
// products. B's panels [units][32] are the packed product's own: 16 units of 16 columns are a tile
// whose rows are 128 bytes apart. A's panels are in the order in which they are loaded: per step
// the tile of rows 0 to 15 and the tile of rows 16 to 31, 16 x 16 units each.
//
// The order of every sum: for each step of 32 elements of the reduction in order, the step's dot
// product as TDPBF16PS computes it (emulated_cpu/tiles.cc) is added to the f32 sum; the last step
// is padded with zeros. Slices and tiles of C only decide where a sum rests between two steps.
#pragma once

#include <cstddef>
#include <cstring>

#include "tandem/kernels/amx/tile_config.h"
#include "tandem/kernels/gemm_simd.h"

namespace tandem::kernels::simd {

inline constexpr std::size_t kTileUnits = kTileRowBytes / sizeof(GemmUnit);  // in the reduction
inline constexpr std::size_t kTileSize = kTileRows * kTileUnits;             // in units
inline constexpr std::size_t kTileBlock = 2 * kTileRows;                     // rows or columns of C
inline constexpr std::size_t kStepReduced = 2 * kTileUnits;                  // elements
inline constexpr std::size_t kStepUnits = 2 * kTileSize;  // units of an A panel per step

// Always inlined, so that no copy compiled with AMX can reach code that runs on other processors.
[[gnu::always_inline]] constexpr std::size_t tile_steps(std::size_t units) {
  return (units + kTileUnits - 1) / kTileUnits;
}

// Where the tile of a step of a panel begins, given a row within the panel.
[[gnu::always_inline]] inline GemmUnit* tile_of_a(GemmUnit* panel, std::size_t step,
                                                  std::size_t row) {
  return panel + step * kStepUnits + row / kTileRows * kTileSize;
}

// A stored as [outer, reduced]: pieces of 64 bytes are copied.
template <class Unit>
void pack_tiles_along(const GemmOperand<bfloat16>& from, std::size_t outer, std::size_t outer_count,
                      std::size_t reduced, std::size_t count, std::size_t panel_stride,
                      GemmUnit* to) {
  const std::size_t steps = tile_steps((count + 1) / 2);
  const std::size_t padded = (outer_count + kTileBlock - 1) / kTileBlock * kTileBlock;
  for (std::size_t row = 0; row < padded; ++row) {
    GemmUnit* panel = to + row / kTileBlock * panel_stride;
    const std::size_t in_panel = row % kTileBlock;
    for (std::size_t step = 0; step < steps; ++step) {
      GemmUnit* target = tile_of_a(panel, step, in_panel) + in_panel % kTileRows * kTileUnits;
      if (row >= outer_count) {
        std::memset(target, 0, kTileRowBytes);
        continue;
      }
      const std::size_t begin = step * kStepReduced;
      const bfloat16* source = from.data + (outer + row) * from.ld + reduced + begin;
      if (begin + kStepReduced <= count) {
        std::memcpy(target, source, kTileRowBytes);
      } else {
        std::memset(target, 0, kTileRowBytes);
        std::memcpy(target, source, (count - begin) * sizeof(bfloat16));
      }
    }
  }
}

// A stored as [reduced, outer]: 16 pairs of rows are interleaved and their units transposed. Whole
// rows of the source are read, 32 of them for a step.
template <class Unit>
void pack_tiles_across(const GemmOperand<bfloat16>& from, std::size_t outer,
                       std::size_t outer_count, std::size_t reduced, std::size_t count,
                       std::size_t panel_stride, GemmUnit* to) {
  using V = typename Unit::V;
  static_assert(V::kLanes == kTileRows);
  const std::size_t steps = tile_steps((count + 1) / 2);
  const std::size_t padded = (outer_count + kTileBlock - 1) / kTileBlock * kTileBlock;
  alignas(64) GemmUnit units[kTileSize];  // [unit][row of A]
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t row = 0; row < padded; row += kTileRows) {
      const std::size_t given = row >= outer_count              ? 0
                                : outer_count - row < kTileRows ? outer_count - row
                                                                : kTileRows;
      for (std::size_t u = 0; u < kTileUnits; ++u) {
        const std::size_t r = step * kStepReduced + 2 * u;
        if (given == 0 || r >= count) {
          std::memset(units + u * kTileRows, 0, kTileRowBytes);
          continue;
        }
        const bfloat16* source = from.data + (reduced + r) * from.ld + outer + row;
        V::store_words(Unit::across(source, from.ld, r + 1 == count, given), units + u * kTileRows);
      }
      GemmUnit* tile = tile_of_a(to + row / kTileBlock * panel_stride, step, row % kTileBlock);
      for (std::size_t i = 0; i < kTileRows; i += 8) {
        for (std::size_t u = 0; u < kTileUnits; u += 8) {
          typename V::Eight block[8];
          for (std::size_t j = 0; j < 8; ++j) {
            block[j] = V::load_8(reinterpret_cast<const float*>(units + (u + j) * kTileRows + i));
          }
          V::store_transposed(block, tile + i * kTileUnits + u, kTileUnits);
        }
      }
    }
  }
}

template <class Unit>
void pack_tiles_of_a(const GemmOperand<bfloat16>& from, std::size_t outer, std::size_t outer_count,
                     std::size_t reduced, std::size_t count, std::size_t panel_stride,
                     GemmUnit* to) {
  const auto f = from.reduction_is_row ? pack_tiles_along<Unit> : pack_tiles_across<Unit>;
  f(from, outer, outer_count, reduced, count, panel_stride, to);
}

// The panels of the packed product, the last step of the reduction filled up with zeros: what is in
// memory there might be NaN.
template <class Unit>
void pack_tiles_of_b(const GemmOperand<bfloat16>& from, std::size_t outer, std::size_t outer_count,
                     std::size_t reduced, std::size_t count, std::size_t panel_stride,
                     GemmUnit* to) {
  pack_b<Unit, kTileBlock>(from, outer, outer_count, reduced, count, panel_stride, to);
  const std::size_t units = (count + 1) / 2;
  const std::size_t missing = tile_steps(units) * kTileUnits - units;
  for (std::size_t column = 0; column < outer_count; column += kTileBlock) {
    std::memset(to + column / kTileBlock * panel_stride + units * kTileBlock, 0,
                missing * kTileBlock * sizeof(GemmUnit));
  }
}

// Where the tiles of 32 rows of A are, in units.
struct TileRows {
  const GemmUnit* data = nullptr;
  std::size_t stride = 0;  // between rows
  std::size_t lower = 0;   // to the tile of rows 16 to 31
  std::size_t step = 0;    // to the next step of the reduction
  bool prefetch = false;

  // A panel of A.
  [[gnu::always_inline]] static constexpr TileRows of_panel(const GemmUnit* panel) {
    return {.data = panel,
            .stride = kTileUnits,
            .lower = kTileSize,
            .step = kStepUnits,
            .prefetch = true};
  }
};

// A comes from the L2 cache, panel after panel with a gap of one cache line. A prototype on
// Sapphire Rapids gained 12 to 20 % by prefetching on long reductions and next to a busy neighbour,
// nothing otherwise.
inline constexpr std::size_t kTileStepsAhead = 4;

// c[16 kRowTiles, 32] = or += A B over `steps`; b: [units][32].
template <int kRowTiles, class Tiles>
[[gnu::always_inline]] inline void multiply_tile_block(Tiles& tiles, std::size_t steps, TileRows a,
                                                       const GemmUnit* b, float* c, std::size_t ld,
                                                       bool accumulate) {
  const std::size_t c_stride = ld * sizeof(float);
  const std::size_t a_stride = a.stride * sizeof(GemmUnit);
  constexpr std::size_t kBStride = kTileBlock * sizeof(GemmUnit);
  constexpr bool kLower = kRowTiles == 2;
  static_assert(kRowTiles == 1 || kRowTiles == 2);
  float* lower = c + kTileRows * ld;
  if (accumulate) {
    tiles.template load<0>(c, c_stride);
    tiles.template load<1>(c + kTileRows, c_stride);
    if constexpr (kLower) tiles.template load<2>(lower, c_stride);
    if constexpr (kLower) tiles.template load<3>(lower + kTileRows, c_stride);
  } else {
    tiles.template zero<0>();
    tiles.template zero<1>();
    if constexpr (kLower) tiles.template zero<2>();
    if constexpr (kLower) tiles.template zero<3>();
  }
  for (std::size_t step = 0; step < steps; ++step) {
    if (a.prefetch) {
      const GemmUnit* ahead = a.data + kTileStepsAhead * a.step;
      for (std::size_t i = 0; i < kTileRows; ++i) {
        __builtin_prefetch(ahead + i * a.stride);
        if constexpr (kLower) __builtin_prefetch(ahead + a.lower + i * a.stride);
      }
    }
    tiles.template load<4>(a.data, a_stride);
    tiles.template load<6>(b, kBStride);
    tiles.template dot<0, 4, 6>();
    tiles.template load<7>(b + kTileRows, kBStride);
    tiles.template dot<1, 4, 7>();
    if constexpr (kLower) {
      tiles.template load<5>(a.data + a.lower, a_stride);
      tiles.template dot<2, 5, 6>();
      tiles.template dot<3, 5, 7>();
    }
    a.data += a.step;
    b += kTileUnits * kTileBlock;
  }
  tiles.template store<0>(c, c_stride);
  tiles.template store<1>(c + kTileRows, c_stride);
  if constexpr (kLower) tiles.template store<2>(lower, c_stride);
  if constexpr (kLower) tiles.template store<3>(lower + kTileRows, c_stride);
}

// One panel of B at a time, so that it stays in the L1 cache while all panels of A pass.
template <class Unit>
void multiply_tiles(const GemmSlice<bfloat16>& slice) {
  typename Unit::Instruction tiles(TileConfig::full());
  const std::size_t steps = tile_steps(slice.units);
  for (std::size_t column = 0; column < slice.columns; column += kTileBlock) {
    const GemmUnit* panel = slice.b.data + column / kTileBlock * slice.b.panel_stride;
    for (std::size_t row = 0; row < slice.rows; row += kTileBlock) {
      const GemmUnit* rows_of_a = slice.a.data + row / kTileBlock * slice.a.stride;
      multiply_tile_block<2>(tiles, steps, TileRows::of_panel(rows_of_a), panel,
                             slice.tile + row * slice.ld + column, slice.ld, slice.accumulate);
    }
  }
}

inline constexpr double kFlopsPerDot = 2.0 * kTileRows * kTileRows * kStepReduced;

// The best rate of dot(), on registers only. Returns the FLOPs done.
template <class Tiles>
double peak_tiles(std::size_t iterations) {
  Tiles tiles(TileConfig::full());
  for (std::size_t i = 0; i < iterations; ++i) {
    tiles.template dot<0, 4, 6>();
    tiles.template dot<1, 4, 7>();
    tiles.template dot<2, 5, 6>();
    tiles.template dot<3, 5, 7>();
  }
  return 4.0 * kFlopsPerDot * static_cast<double>(iterations);
}

// As peak_tiles(), with one tile of `block` (8 KB, 64-byte aligned) loaded for each dot; an
// iteration passes over the block once.
template <class Tiles>
double l1_peak_tiles(std::size_t iterations, const float* block) {
  constexpr std::size_t kFloats = kTileRowBytes / sizeof(float) * kTileRows;
  constexpr std::size_t kTilesOfBlock = 8;
  Tiles tiles(TileConfig::full());
  for (std::size_t i = 0; i < iterations; ++i) {
    for (const float* from = block; from != block + kTilesOfBlock * kFloats; from += 4 * kFloats) {
      tiles.template load<6>(from, kTileRowBytes);
      tiles.template dot<0, 4, 6>();
      tiles.template load<7>(from + kFloats, kTileRowBytes);
      tiles.template dot<1, 4, 7>();
      tiles.template load<6>(from + 2 * kFloats, kTileRowBytes);
      tiles.template dot<2, 5, 6>();
      tiles.template load<7>(from + 3 * kFloats, kTileRowBytes);
      tiles.template dot<3, 5, 7>();
    }
  }
  return kTilesOfBlock * kFlopsPerDot * static_cast<double>(iterations);
}

// A step of a 32 x 32 block takes 64 cycles and 2 KB of each operand; the L2 cache gives some 40
// bytes a cycle. So the panel of B must come from the L1 cache (256 units x 32 columns = 32 KB)
// while A's come from L2; with 384 x 384 sums of f32 (576 KB) a slice of A and one of B (384 KB
// each) fill 1.3 MB of an L2 cache of 2 MB. Derived; docs/results/steps.md has what is reached.
template <class Unit>
constexpr PackedGemmOf<bfloat16> tiled_gemm_of() {
  constexpr GemmBlocks kBlocks = {.tile_rows = 384, .tile_columns = 384, .slice_units = 256};
  return {.mr = kTileBlock,
          .nr = kTileBlock,
          .reduced_per_unit = 2,
          .slice_granule = kTileUnits,
          .blocks_b_ahead = kBlocks,
          .blocks_b_staged = kBlocks,
          .every_b_ahead = true,
          .packs_next_slice = false,
          .stage_rows = nullptr,
          .pack_a = pack_tiles_of_a<Unit>,
          .pack_b = pack_tiles_of_b<Unit>,
          .multiply = multiply_tiles<Unit>,
          .store_f32 = store_tile<Unit, float>,
          .store_bf16 = store_tile<Unit, bfloat16>};
}

}  // namespace tandem::kernels::simd
