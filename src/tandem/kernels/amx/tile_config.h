// Internal: what AMX's tile registers look like, for the hardware (amx/tiles_hardware.h) and its
// plain C++ reference (tests/emulated_cpu/tiles.h).
//
// There are eight tiles of at most 16 rows of 64 bytes. TDPBF16PS multiplies a tile of rows of A
// (16 rows of 32 bf16) by a tile of B whose rows are pairs of the reduction (16 pairs of 16
// columns) and adds to 16 x 16 f32. TDPBUSD multiplies 16 rows of 64 u8 by a tile of B whose rows
// are groups of four s8 of the reduction (16 groups of 16 columns) and adds to 16 x 16 s32.
//
// Both versions are a class `Tiles` with the same interface; sizes beyond the configuration, or
// tiles that do not fit one another, fault on the hardware and fail a TANDEM_CHECK in the
// emulation:
//   Tiles(config)              configures the calling thread's tiles, all zero (ldtilecfg)
//   ~Tiles()                   gives them back (tilerelease)
//   zero<t>()                  tilezero
//   load<t>(p, stride_bytes)   its rows, stride_bytes apart (tileloadd)
//   load_once<t>(p, stride)    load<t>() of rows that need not stay in the L1 cache (tileloaddt1)
//   store<t>(p, stride_bytes)  tilestored
//   dot<sum, a, b>()           tdpbf16ps; three different tiles
//   dot_bytes<sum, a, b>()     tdpbusd; three different tiles
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::kernels {

inline constexpr std::size_t kTileRows = 16;
inline constexpr std::size_t kTileRowBytes = 64;
inline constexpr std::size_t kTiles = 8;

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};  // row bytes of tiles 0 to 7; the rest is reserved
  std::uint8_t rows[16] = {};

  // All tiles at their full size.
  [[gnu::always_inline]] static constexpr TileConfig full() {
    TileConfig config;
    for (std::size_t t = 0; t < kTiles; ++t) {
      config.row_bytes[t] = kTileRowBytes;
      config.rows[t] = kTileRows;
    }
    return config;
  }
};
static_assert(sizeof(TileConfig) == 64);

// One TDPBF16PS on tiles of any configured size: sum (tile 0) += a (tile 1) b (tile 2).
struct TileDot {
  const void* a = nullptr;
  std::size_t a_stride_bytes = 0;
  const void* b = nullptr;
  std::size_t b_stride_bytes = 0;
  float* sum = nullptr;
  std::size_t sum_stride_bytes = 0;
};

template <class Tiles>
void run_tile_dot(const TileConfig& config, const TileDot& dot) {
  Tiles tiles(config);
  tiles.template load<0>(dot.sum, dot.sum_stride_bytes);
  tiles.template load<1>(dot.a, dot.a_stride_bytes);
  tiles.template load<2>(dot.b, dot.b_stride_bytes);
  tiles.template dot<0, 1, 2>();
  tiles.template store<0>(dot.sum, dot.sum_stride_bytes);
}

}  // namespace tandem::kernels
