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

#include "tandem/kernels/amx/peak_operands.h"
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

// A stored as [outer, reduced]: pieces of 64 bytes are copied, one tile after the other. The pieces
// of one row would lie in few sets of the L1 cache.
template <class Unit>
void pack_tiles_along(const GemmOperand<bfloat16>& from, std::size_t outer, std::size_t outer_count,
                      std::size_t reduced, std::size_t count, std::size_t panel_stride,
                      GemmUnit* to) {
  const std::size_t steps = tile_steps((count + 1) / 2);
  const std::size_t padded = (outer_count + kTileBlock - 1) / kTileBlock * kTileBlock;
  for (std::size_t row = 0; row < padded; row += kTileRows) {
    GemmUnit* panel = to + row / kTileBlock * panel_stride;
    const std::size_t left = row < outer_count ? outer_count - row : 0;
    const std::size_t rows = left < kTileRows ? left : kTileRows;
    for (std::size_t step = 0; step < steps; ++step) {
      GemmUnit* tile = tile_of_a(panel, step, row % kTileBlock);
      const std::size_t begin = step * kStepReduced;
      const std::size_t size = count - begin < kStepReduced ? count - begin : kStepReduced;
      const bfloat16* source = from.data + (outer + row) * from.ld + reduced + begin;
      if (rows == kTileRows && size == kStepReduced) {
        for (std::size_t i = 0; i < kTileRows; ++i)
          std::memcpy(tile + i * kTileUnits, source + i * from.ld, kTileRowBytes);
        continue;
      }
      std::memset(tile, 0, kTileRows * kTileRowBytes);
      for (std::size_t i = 0; i < rows; ++i)
        std::memcpy(tile + i * kTileUnits, source + i * from.ld, size * sizeof(bfloat16));
    }
  }
}

// The units of 16 pairs of rows at 16 columns, [unit][column]; `count` rows and `given` columns are
// in memory, the others are zero.
template <class Unit>
void gather_units(const bfloat16* source, std::size_t ld, std::size_t count, std::size_t given,
                  GemmUnit* units) {
  for (std::size_t u = 0; u < kTileUnits; ++u) {
    const std::size_t r = 2 * u;
    if (given == 0 || r >= count) {
      std::memset(units + u * kTileRows, 0, kTileRowBytes);
    } else {
      Unit::V::store_words(Unit::across(source + r * ld, ld, r + 1 == count, given),
                           units + u * kTileRows);
    }
  }
}

// The same at 32 columns, all in memory, 16 after 16.
template <class Unit>
[[gnu::always_inline]] inline void gather_whole_units(const bfloat16* source, std::size_t ld,
                                                      GemmUnit* units) {
  for (std::size_t u = 0; u < kTileUnits; ++u) {
    typename Unit::V::Words first;
    typename Unit::V::Words second;
    Unit::across_two(source + 2 * u * ld, ld, false, first, second);
    Unit::V::store_words(first, units + u * kTileRows);
    Unit::V::store_words(second, units + kTileSize + u * kTileRows);
  }
}

// A stored as [reduced, outer]: pairs of rows are interleaved and their units transposed. Whole
// rows of the source are read, 32 of them for a step.
template <class Unit>
void pack_tiles_across(const GemmOperand<bfloat16>& from, std::size_t outer,
                       std::size_t outer_count, std::size_t reduced, std::size_t count,
                       std::size_t panel_stride, GemmUnit* to) {
  using V = typename Unit::V;
  static_assert(V::kLanes == kTileRows);
  const std::size_t steps = tile_steps((count + 1) / 2);
  alignas(64) GemmUnit units[2 * kTileSize];
  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t begin = step * kStepReduced;
    const std::size_t rows = count - begin < kStepReduced ? count - begin : kStepReduced;
    for (std::size_t row = 0; row < outer_count; row += kTileBlock) {
      const bfloat16* source = from.data + (reduced + begin) * from.ld + outer + row;
      const std::size_t given = outer_count - row < kTileBlock ? outer_count - row : kTileBlock;
      if (rows == kStepReduced && given == kTileBlock) {
        gather_whole_units<Unit>(source, from.ld, units);
      } else {
        const std::size_t first = given < kTileRows ? given : kTileRows;
        gather_units<Unit>(source, from.ld, rows, first, units);
        gather_units<Unit>(source + first, from.ld, rows, given - first, units + kTileSize);
      }
      GemmUnit* tile = tile_of_a(to + row / kTileBlock * panel_stride, step, 0);
      V::transpose_16(units, tile, kTileUnits);
      V::transpose_16(units + kTileSize, tile + kTileSize, kTileUnits);
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

  // A panel of A.
  [[gnu::always_inline]] static constexpr TileRows of_panel(const GemmUnit* panel) {
    return {.data = panel, .stride = kTileUnits, .lower = kTileSize, .step = kStepUnits};
  }
};

// Between the steps of a block: nothing.
struct NoTileWork {
  [[gnu::always_inline]] static void step() {}
};

// Blocks of sums, one after the other: c[16 kRowTiles, 32] = or += A B over `steps`;
// b: [units][32].
// A processor does not store a tile beside products that overwrite it. So the lower sums of a block
// are stored between the first products of the next one; finish() stores those of the last.
template <class Tiles>
class TileBlocks {
 public:
  [[gnu::always_inline]] explicit TileBlocks(Tiles& tiles) : tiles_(tiles) {}
  TileBlocks(const TileBlocks&) = delete;
  TileBlocks& operator=(const TileBlocks&) = delete;

  // between.step() is called after every step: its instructions run beside the dot products. It may
  // read all sums of the blocks before this one.
  template <int kRowTiles, class Between = NoTileWork>
  [[gnu::always_inline]] void multiply(std::size_t steps, TileRows a, const GemmUnit* b, float* c,
                                       std::size_t ld, bool accumulate, Between&& between = {}) {
    static_assert(kRowTiles == 1 || kRowTiles == 2);
    constexpr bool kLower = kRowTiles == 2;
    const std::size_t c_stride = ld * sizeof(float);
    float* const lower = c + kTileRows * ld;
    begin<0, 1>(c, c_stride, accumulate);
    std::size_t step = 0;
    if (steps > 0) {
      multiply_upper(a, b);
      finish();
      if constexpr (kLower) begin<2, 3>(lower, c_stride, accumulate);
      if constexpr (kLower) multiply_lower(a);
      between.step();
      step = 1;
    } else {
      finish();
      if constexpr (kLower) begin<2, 3>(lower, c_stride, accumulate);
    }
    for (; step < steps; ++step) {
      a.data += a.step;
      b += kTileUnits * kTileBlock;
      multiply_upper(a, b);
      if constexpr (kLower) multiply_lower(a);
      between.step();
    }
    store<0, 1>(c, c_stride);
    if constexpr (kLower) lower_ = lower;
    stride_ = c_stride;
  }

  [[gnu::always_inline]] void finish() {
    if (lower_ != nullptr) store<2, 3>(lower_, stride_);
    lower_ = nullptr;
  }

 private:
  template <int kLeft, int kRight>
  [[gnu::always_inline]] void begin(const float* c, std::size_t stride, bool accumulate) {
    if (accumulate) {
      tiles_.template load<kLeft>(c, stride);
      tiles_.template load<kRight>(c + kTileRows, stride);
    } else {
      tiles_.template zero<kLeft>();
      tiles_.template zero<kRight>();
    }
  }
  template <int kLeft, int kRight>
  [[gnu::always_inline]] void store(float* c, std::size_t stride) {
    tiles_.template store<kLeft>(c, stride);
    tiles_.template store<kRight>(c + kTileRows, stride);
  }
  [[gnu::always_inline]] void multiply_upper(const TileRows& a, const GemmUnit* b) {
    constexpr std::size_t kBStride = kTileBlock * sizeof(GemmUnit);
    tiles_.template load_once<4>(a.data, a.stride * sizeof(GemmUnit));
    tiles_.template load<6>(b, kBStride);
    tiles_.template dot<0, 4, 6>();
    tiles_.template load<7>(b + kTileRows, kBStride);
    tiles_.template dot<1, 4, 7>();
  }
  [[gnu::always_inline]] void multiply_lower(const TileRows& a) {
    tiles_.template load_once<5>(a.data + a.lower, a.stride * sizeof(GemmUnit));
    tiles_.template dot<2, 5, 6>();
    tiles_.template dot<3, 5, 7>();
  }

  Tiles& tiles_;
  float* lower_ = nullptr;  // rows 16 to 31 of the block before, or null
  std::size_t stride_ = 0;
};

inline constexpr double kFlopsPerDot = 2.0 * kTileRows * kTileRows * kStepReduced;

// The best rate of dot(), on registers only. Returns the FLOPs done.
template <class Tiles>
double peak_tiles(std::size_t iterations) {
  Tiles tiles(TileConfig::full());
  load_peak_operands(tiles);
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
  load_peak_operands(tiles);
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

}  // namespace tandem::kernels::simd
