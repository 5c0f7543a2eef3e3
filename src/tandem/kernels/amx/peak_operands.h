// Internal: operands for loops that measure the peak rate of AMX's dot products.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tandem/kernels/amx/tile_config.h"

namespace tandem::kernels {

inline constexpr std::size_t kTileBytes = kTileRows * kTileRowBytes;

// Four tiles of finite bf16 between 1 and 2 with either sign, in no order. As bytes they are
// operands of dot_bytes().
[[gnu::always_inline]] constexpr std::array<std::uint16_t, 4 * kTileBytes / 2> peak_operands() {
  std::array<std::uint16_t, 4 * kTileBytes / 2> values{};
  std::uint32_t state = 1;
  for (std::uint16_t& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<std::uint16_t>(0x3f80 | (state >> 16 & 0x807f));
  }
  return values;
}

// Loads tiles 4 to 7. The hardware knows that a tile which was only configured is zero. On a core
// whose second hardware thread is busy, dot products of such tiles were 2.4 times as fast as those
// of loaded ones.
template <class Tiles>
[[gnu::always_inline]] inline void load_peak_operands(Tiles& tiles) {
  alignas(64) static constexpr auto kOperands = peak_operands();
  const auto* bytes = reinterpret_cast<const char*>(kOperands.data());
  tiles.template load<4>(bytes, kTileRowBytes);
  tiles.template load<5>(bytes + kTileBytes, kTileRowBytes);
  tiles.template load<6>(bytes + 2 * kTileBytes, kTileRowBytes);
  tiles.template load<7>(bytes + 3 * kTileBytes, kTileRowBytes);
}

}  // namespace tandem::kernels
