// Internal: AVX512_BF16 in addition to the vector of simd/avx512.h. Include it only from sources
// compiled with it. Everything is always inlined. Its emulation: tests/emulated_cpu/vectors.h.
#pragma once

#include <immintrin.h>

#include <cstddef>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/simd/avx512.h"

namespace tandem::kernels::avx512bf16 {

using avx512::Vec;

// 16 elements rounded for a product: vcvtneps2bf16 makes denormals zero, as vdpbf16ps does.
struct Rounded {
  __m256bh v;

  [[gnu::always_inline]] static inline void store(Rounded x, bfloat16* p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(x.v));
  }
  [[gnu::always_inline]] static inline void store_partial(Rounded x, bfloat16* p, std::size_t n) {
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1u),
                             reinterpret_cast<__m256i>(x.v));
  }
};

struct Vdpbf16ps {
  [[gnu::always_inline]] static inline Vec dot(__m512i a, __m512i b, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }
  [[gnu::always_inline]] static inline Rounded rounded(Vec x) { return {_mm512_cvtneps_pbh(x.v)}; }
};

}  // namespace tandem::kernels::avx512bf16
