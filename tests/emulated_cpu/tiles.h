// The plain C++ reference for AMX's tiles (interface: tandem/kernels/amx/tile_config.h). It follows
// the instructions' published definition bit for bit on every CPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tandem/kernels/amx/tile_config.h"

namespace tandem::kernels::emulated {

class Tiles {
 public:
  explicit Tiles(const TileConfig& config);
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kTile>
  void zero() {
    zero(tile<kTile>());
  }
  template <int kTile>
  void load(const void* p, std::size_t stride_bytes) {
    load(tile<kTile>(), p, stride_bytes);
  }
  template <int kTile>
  void load_once(const void* p, std::size_t stride_bytes) {
    load<kTile>(p, stride_bytes);
  }
  template <int kTile>
  void store(void* p, std::size_t stride_bytes) const {
    store(tiles_[kTile], p, stride_bytes);
  }
  template <int kSum, int kA, int kB>
  void dot() {
    static_assert(kSum != kA && kSum != kB && kA != kB);
    dot(tile<kSum>(), tile<kA>(), tile<kB>());
  }
  template <int kSum, int kA, int kB>
  void dot_bytes() {
    static_assert(kSum != kA && kSum != kB && kA != kB);
    dot_bytes(tile<kSum>(), tile<kA>(), tile<kB>());
  }

 private:
  struct Tile {
    std::size_t rows = 0;
    std::size_t row_bytes = 0;
    std::array<std::array<std::byte, kTileRowBytes>, kTileRows> bytes = {};
  };

  template <int kTile>
  Tile& tile() {
    static_assert(kTile >= 0 && kTile < static_cast<int>(kTiles));
    return tiles_[kTile];
  }
  static void zero(Tile& tile);
  static void load(Tile& tile, const void* p, std::size_t stride_bytes);
  static void store(const Tile& tile, void* p, std::size_t stride_bytes);
  static void dot(Tile& sum, const Tile& a, const Tile& b);
  static void dot_bytes(Tile& sum, const Tile& a, const Tile& b);

  std::array<Tile, kTiles> tiles_;
};

}  // namespace tandem::kernels::emulated
