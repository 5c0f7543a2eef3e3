// Internal: the transposition of 8 x 8 words that AVX2 and AVX-512 share. Include it only from
// sources compiled with AVX2.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tandem::kernels::simd {

// 8 rows of 8 words become 8 rows of 8 words, `ld` words apart.
[[gnu::always_inline]] inline void transpose_8x8(__m256 (&rows)[8], std::uint32_t* to,
                                                 std::size_t ld) {
  __m256 pairs[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  __m256 quads[8];
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    const auto at = [&](int row) __attribute__((always_inline)) {
      return reinterpret_cast<float*>(to + static_cast<std::size_t>(row) * ld);
    };
    _mm256_storeu_ps(at(i), _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20));
    _mm256_storeu_ps(at(i + 4), _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31));
  }
}

}  // namespace tandem::kernels::simd
