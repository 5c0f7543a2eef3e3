// Internal: AVX512_BF16 in addition to the vector of simd/avx512.h. Include it only from sources
// compiled with it. Everything is always inlined. Its emulation: tests/emulated_cpu/vectors.h.
#pragma once

#include <immintrin.h>

#include <cstddef>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/simd/avx512.h"
#include "tandem/kernels/simd/sixteen_lanes.h"

namespace tandem::kernels::avx512bf16 {

using avx512::Vec;

// 32 elements rounded for a product: vcvtne2ps2bf16 makes denormals zero, as vdpbf16ps does.
struct Rounded {
  __m512i v;

  [[gnu::always_inline]] Rounded zero_unless(__mmask32 kept) const {
    return {_mm512_maskz_mov_epi16(kept, v)};
  }
  [[gnu::always_inline]] Rounded zero_unless(simd::AllKept) const { return *this; }
  [[gnu::always_inline]] static inline void store(Rounded x, bfloat16* p) {
    _mm512_storeu_si512(p, x.v);
  }
  [[gnu::always_inline]] static inline void store_partial(Rounded x, bfloat16* p, std::size_t n) {
    _mm512_mask_storeu_epi16(p, static_cast<__mmask32>((1u << n) - 1u), x.v);
  }
};

struct Vdpbf16ps {
  [[gnu::always_inline]] static inline Vec dot(__m512i a, __m512i b, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }
  [[gnu::always_inline]] static inline Rounded rounded(simd::Twice<Vec> x) {
    return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x.high.v, x.low.v))};
  }
};

}  // namespace tandem::kernels::avx512bf16
