// IEEE 754 binary16. tandem stores and sends it; it never computes in it.
#pragma once

#include <bit>
#include <cstdint>

#include "tandem/core/bfloat16.h"

namespace tandem {

struct float16 {
  std::uint16_t bits = 0;
  friend bool operator==(float16, float16) = default;
};

inline float to_float(float16 x) { return half_to_float(x.bits); }

// Round to nearest even, gradual underflow, overflow to infinity; NaN stays NaN (quiet, with the
// upper bits of its payload), as the conversion instructions of F16C do.
constexpr float16 to_float16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  const auto with_sign = [sign](std::uint32_t bits) {
    return float16{static_cast<std::uint16_t>(sign | bits)};
  };
  if (magnitude > 0x7f800000u) return with_sign(0x7e00u | ((magnitude >> 13) & 0x3ffu));
  // 65520 is half way between the largest number and the next power of two, and rounds to even:
  // infinity.
  if (magnitude >= 0x477ff000u) return with_sign(0x7c00u);
  // Adding 2^k puts the bits that stay at the lower end of the mantissa, and the addition rounds
  // them to even.
  if (magnitude < 0x38800000u) {  // below 2^-14: multiples of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return with_sign(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return with_sign((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

}  // namespace tandem
