// Products of int8.h with vpmaddwd: activations and weights are widened to s16, whose products are
// added in pairs to s32. (vpmaddubsw would take the bytes, but it saturates.)
#include <immintrin.h>

#include "tandem/kernels/int8_simd.h"
#include "tandem/kernels/simd/avx2.h"
#include "tandem/kernels/simd_kernels.h"

#define TANDEM_SIMD [[gnu::always_inline]] static inline

namespace tandem::kernels {
namespace avx2 {

struct Int8Unit {
  using V = Vec;
  using Element = std::uint16_t;
  using X = __m256i;
  // Each vector: four output features, two s32 of each.
  struct Sums {
    __m256i v[4];
  };
  // Each vector: the four elements of four output features.
  struct Weights {
    __m256i v[4];
  };

  TANDEM_SIMD Sums zero() {
    Sums sums;
    unroll<4>([&](auto i) __attribute__((always_inline)) { sums.v[i] = _mm256_setzero_si256(); });
    return sums;
  }
  TANDEM_SIMD Weights load(const std::int8_t* p) {
    Weights weights;
    unroll<4>([&](auto i) __attribute__((always_inline)) {
      weights.v[i] =
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i * 16)));
    });
    return weights;
  }
  TANDEM_SIMD X broadcast(const std::byte* four) {
    long long bits;
    __builtin_memcpy(&bits, four, sizeof(bits));
    return _mm256_set1_epi64x(bits);
  }
  TANDEM_SIMD Sums add_products(X x, const Weights& weights, Sums sums) {
    unroll<4>([&](auto i) __attribute__((always_inline)) {
      sums.v[i] = _mm256_add_epi32(sums.v[i], _mm256_madd_epi16(x, weights.v[i]));
    });
    return sums;
  }
  TANDEM_SIMD void to_float(const Sums& sums, std::int32_t zero_point, const std::int32_t* row_sums,
                            Vec (&to)[2]) {
    unroll<2>([&](auto i) __attribute__((always_inline)) {
      // The halves of the two vectors alternate: features 0 1 4 5 2 3 6 7.
      const __m256i mixed = _mm256_hadd_epi32(sums.v[2 * i], sums.v[2 * i + 1]);
      const __m256i sum = _mm256_permute4x64_epi64(mixed, 0xD8);
      const __m256i row =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row_sums + i * Vec::kLanes));
      const __m256i shift = _mm256_mullo_epi32(row, _mm256_set1_epi32(zero_point));
      to[i].v = _mm256_cvtepi32_ps(_mm256_sub_epi32(sum, shift));
    });
  }
  TANDEM_SIMD void to_elements(Vec x, std::int32_t zero_point, Element* to, std::size_t n) {
    const __m256i q =
        _mm256_add_epi32(_mm256_cvtps_epi32(Vec::round(x).v), _mm256_set1_epi32(zero_point));
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    if (n == Vec::kLanes) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
      return;
    }
    alignas(16) Element all[Vec::kLanes];
    _mm_store_si128(reinterpret_cast<__m128i*>(all), words);
    for (std::size_t i = 0; i < n; ++i) to[i] = all[i];
  }
  TANDEM_SIMD void opaque(__m256i& x) { __asm__ volatile("" : "+v"(x)); }
  TANDEM_SIMD void opaque(Sums& sums) {
    unroll<4>([&](auto i) __attribute__((always_inline)) { opaque(sums.v[i]); });
  }
};

}  // namespace avx2

constinit const Int8Kernels kInt8Avx2 = simd::int8_kernels<avx2::Int8Unit, 2, 1, 2>();

}  // namespace tandem::kernels

#undef TANDEM_SIMD
