// Products of int8.h with vpdpbusd (AVX512_VNNI: Cascade Lake and Ice Lake, Zen 4, and later): four
// products of u8 and s8 are added to an s32 without saturation.
#include "tandem/kernels/int8_simd.h"
#include "tandem/kernels/simd/avx512vnni.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {

constinit const Int8Kernels kInt8Avx512Vnni = simd::int8_kernels<avx512vnni::Int8Unit, 8, 3, 16>();

void byte_dots_avx512vnni(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
                          std::int32_t* sums) {
  for (std::size_t i = 0; i < count; i += 16) {
    const __m512i sum = avx512vnni::Int8Unit::add_products(
        _mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i), _mm512_loadu_si512(sums + i));
    _mm512_storeu_si512(sums + i, sum);
  }
}

}  // namespace tandem::kernels
