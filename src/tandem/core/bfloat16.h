// bfloat16: the upper half of an f32. Rounding is round-to-nearest-even everywhere; NaN stays NaN
// (quiet).
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace tandem {

struct bfloat16 {
  std::uint16_t bits = 0;
  friend bool operator==(bfloat16, bfloat16) = default;
};

constexpr float to_float(bfloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

constexpr float to_float(float x) { return x; }

constexpr bfloat16 to_bfloat16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// IEEE 754 binary16; its type is in float16.h.
float half_to_float(std::uint16_t bits);

// Converts f32 to the type a kernel stores: to_storage<bfloat16>(x) or to_storage<float>(x).
template <class T>
constexpr T to_storage(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return to_bfloat16(x);
  }
}

}  // namespace tandem
