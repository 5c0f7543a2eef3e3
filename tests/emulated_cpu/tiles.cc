#include "emulated_cpu/tiles.h"

#include <cstring>

#include "emulated_cpu/vectors.h"
#include "tandem/core/error.h"

namespace tandem::kernels::emulated {

Tiles::Tiles(const TileConfig& config) {
  TANDEM_CHECK(config.palette == 1 && config.start_row == 0, "palette {}, start row {}",
               config.palette, config.start_row);
  for (std::size_t t = 0; t < kTiles; ++t) {
    const std::size_t rows = config.rows[t];
    const std::size_t row_bytes = config.row_bytes[t];
    TANDEM_CHECK(rows <= kTileRows && row_bytes <= kTileRowBytes && (rows == 0) == (row_bytes == 0),
                 "tile {}: {} rows of {} bytes", t, rows, row_bytes);
    tiles_[t].rows = rows;
    tiles_[t].row_bytes = row_bytes;
  }
}

void Tiles::zero(Tile& tile) {
  TANDEM_CHECK(tile.rows != 0, "the tile is not configured");
  tile.bytes = {};
}

void Tiles::load(Tile& tile, const void* p, std::size_t stride_bytes) {
  zero(tile);
  for (std::size_t i = 0; i < tile.rows; ++i) {
    const auto* row = static_cast<const std::byte*>(p) + i * stride_bytes;
    std::memcpy(tile.bytes[i].data(), row, tile.row_bytes);
  }
}

void Tiles::store(const Tile& tile, void* p, std::size_t stride_bytes) {
  TANDEM_CHECK(tile.rows != 0, "the tile is not configured");
  for (std::size_t i = 0; i < tile.rows; ++i) {
    auto* row = static_cast<std::byte*>(p) + i * stride_bytes;
    std::memcpy(row, tile.bytes[i].data(), tile.row_bytes);
  }
}

namespace {

// The shapes of the three operands fit one another.
void check_shapes(std::size_t sum_rows, std::size_t sum_bytes, std::size_t a_rows,
                  std::size_t a_bytes, std::size_t b_rows, std::size_t b_bytes) {
  TANDEM_CHECK(sum_rows != 0 && sum_bytes % 4 == 0 && a_bytes % 4 == 0 && sum_rows == a_rows &&
                   sum_bytes == b_bytes && a_bytes == b_rows * 4,
               "{} rows of {} bytes += {} rows of {} bytes times {} rows of {} bytes", sum_rows,
               sum_bytes, a_rows, a_bytes, b_rows, b_bytes);
}

constexpr std::size_t kWords = kTileRowBytes / sizeof(std::uint32_t);

std::array<std::uint32_t, kWords> words(const std::array<std::byte, kTileRowBytes>& row) {
  return std::bit_cast<std::array<std::uint32_t, kWords>>(row);
}

}  // namespace

// TDPBUSD: the four products of u8 and s8 of a group are added to the s32 without saturation.
void Tiles::dot_bytes(Tile& sum, const Tile& a, const Tile& b) {
  check_shapes(sum.rows, sum.row_bytes, a.rows, a.row_bytes, b.rows, b.row_bytes);
  const std::size_t columns = sum.row_bytes / sizeof(std::int32_t);
  for (std::size_t m = 0; m < sum.rows; ++m) {
    const auto groups = words(a.bytes[m]);
    auto sums = std::bit_cast<std::array<std::int32_t, kWords>>(sum.bytes[m]);
    for (std::size_t k = 0; k < b.rows; ++k) {
      const auto weights = words(b.bytes[k]);
      for (std::size_t n = 0; n < columns; ++n)
        sums[n] = dot_of_bytes(groups[k], weights[n], sums[n]);
    }
    std::memcpy(sum.bytes[m].data(), sums.data(), kTileRowBytes);
  }
}

// TDPBF16PS. For each element of the result the manual keeps two chains of fused multiply-adds over
// the pairs of the reduction, both from zero: one of the low halves, one of the high halves. The
// two are added, then their sum is added to the element; all of it with denormals flushed.
//
// Uncertain, to be settled by bf16_instructions_test.cc on the hardware: the intrinsics guide
// abbreviates this to one chain that begins with the element itself (the manual is followed here),
// and the manual does not define which NaN results.
void Tiles::dot(Tile& sum, const Tile& a, const Tile& b) {
  check_shapes(sum.rows, sum.row_bytes, a.rows, a.row_bytes, b.rows, b.row_bytes);
  const std::size_t columns = sum.row_bytes / sizeof(float);
  const std::size_t pairs = b.rows;
  std::array<std::array<float, kWords>, kTileRows> b_low = {};
  std::array<std::array<float, kWords>, kTileRows> b_high = {};
  for (std::size_t k = 0; k < pairs; ++k) {
    const auto row = words(b.bytes[k]);
    for (std::size_t n = 0; n < columns; ++n) {
      b_low[k][n] = low_half(row[n]);
      b_high[k][n] = high_half(row[n]);
    }
  }
  for (std::size_t m = 0; m < sum.rows; ++m) {
    const auto a_row = words(a.bytes[m]);
    std::array<float, kWords> low, high;
    std::array<std::uint32_t, kWords> care = {};
    const auto sum_pairs = [&](auto fused) {
      low = high = {};
      for (std::size_t k = 0; k < pairs; ++k) {
        const float a_low = low_half(a_row[k]);
        const float a_high = high_half(a_row[k]);
        for (std::size_t n = 0; n < kWords; ++n) {
          low[n] = fused(a_low, b_low[k][n], low[n]);
          high[n] = fused(a_high, b_high[k][n], high[n]);
          care[n] |= needs_care(low[n]) | needs_care(high[n]);
        }
      }
    };
    sum_pairs([](float x, float y, float z) { return fused_flushed_mostly(x, y, z); });
    if (any(care)) [[unlikely]]
      sum_pairs([](float x, float y, float z) { return fused_flushed(x, y, z); });
    auto sums = std::bit_cast<std::array<float, kWords>>(sum.bytes[m]);
    for (std::size_t n = 0; n < columns; ++n) {
      sums[n] = add_flushed(flushed(sums[n]), add_flushed(low[n], high[n]));
    }
    std::memcpy(sum.bytes[m].data(), sums.data(), kTileRowBytes);
  }
}

}  // namespace tandem::kernels::emulated
