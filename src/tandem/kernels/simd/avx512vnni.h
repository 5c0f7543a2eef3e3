// Internal: the unit of int8_simd.h with vpdpbusd, beside the vector of simd/avx512.h. Include it
// only from sources compiled with AVX512_VNNI. Everything is always inlined.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/simd/avx512.h"

#define TANDEM_SIMD [[gnu::always_inline]] static inline

namespace tandem::kernels::avx512vnni {

using avx512::Vec;

struct Int8Unit {
  using V = Vec;
  using Element = std::uint8_t;
  using X = __m512i;
  using Sums = __m512i;
  using Weights = __m512i;

  TANDEM_SIMD Sums zero() { return _mm512_setzero_si512(); }
  TANDEM_SIMD Sums load_sums(const std::int32_t* p) { return _mm512_load_si512(p); }
  TANDEM_SIMD Weights load(const std::int8_t* p) { return _mm512_loadu_si512(p); }
  TANDEM_SIMD X broadcast(const std::byte* four) { return Vec::broadcast(four); }
  // Its emulation: tests/emulated_cpu/int8.cc.
  TANDEM_SIMD Sums add_products(X x, Weights weights, Sums sums) {
    return _mm512_dpbusd_epi32(sums, x, weights);
  }
  TANDEM_SIMD void to_float(Sums sums, std::int32_t zero_point, const std::int32_t* row_sums,
                            Vec (&to)[1]) {
    const __m512i shift =
        _mm512_mullo_epi32(_mm512_loadu_si512(row_sums), _mm512_set1_epi32(zero_point));
    to[0].v = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums, shift));
  }
  TANDEM_SIMD void to_elements(Vec x, std::int32_t zero_point, Element* to, std::size_t n) {
    const __m512i whole =
        _mm512_cvt_roundps_epi32(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512i q = _mm512_add_epi32(whole, _mm512_set1_epi32(zero_point));
    _mm512_mask_cvtepi32_storeu_epi8(to, static_cast<__mmask16>((1u << n) - 1u), q);
  }
  TANDEM_SIMD void opaque(Sums& sums) { __asm__ volatile("" : "+v"(sums)); }
};

}  // namespace tandem::kernels::avx512vnni

#undef TANDEM_SIMD
