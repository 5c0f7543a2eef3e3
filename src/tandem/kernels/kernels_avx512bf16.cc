// Products with vdpbf16ps (AVX512_BF16: Zen 4 and 5, Cooper Lake, Sapphire Rapids); f32 products
// are those of kernels_avx512.cc.
#include <immintrin.h>

#include "tandem/kernels/attention_simd.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/simd/avx512.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {
namespace avx512bf16 {

using avx512::Vec;

// 16 elements rounded for a product: vcvtneps2bf16 makes denormals zero, as vdpbf16ps does.
struct Operand {
  __m256bh v;

  [[gnu::always_inline]] static inline void store(Operand x, bfloat16* p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(x.v));
  }
  [[gnu::always_inline]] static inline void store_partial(Operand x, bfloat16* p, std::size_t n) {
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1u),
                             reinterpret_cast<__m256i>(x.v));
  }
};

// A unit is a pair of bf16 that follow one another in the reduction; vdpbf16ps adds both products
// to the f32 sum.
struct PairUnit {
  using V = Vec;
  using T = bfloat16;
  static constexpr std::size_t kReduced = 2;

  [[gnu::always_inline]] static inline __m512i broadcast(const GemmUnit* p) {
    return Vec::broadcast(p);
  }
  [[gnu::always_inline]] static inline Vec multiply_add(__m512i a, __m512i b, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }
  static void stage_row(const bfloat16* from, std::size_t count, GemmUnit* to) {
    std::memcpy(to, from, count * sizeof(bfloat16));
    if (count % 2 != 0) reinterpret_cast<bfloat16*>(to)[count] = {};
  }
  [[gnu::always_inline]] static inline __m512i across(const bfloat16* row, std::size_t ld,
                                                      bool last, std::size_t n) {
    return Vec::interleave(row, last ? nullptr : row + ld, n);
  }
  template <class Place>
  [[gnu::always_inline]] static inline void store_operand(Place at, Vec x, bfloat16* to) {
    at.store(Operand{_mm512_cvtneps_pbh(x.v)}, to);
  }
  static GemmUnit unit(const bfloat16* p, std::size_t count) {
    return p[0].bits | (count < 2 ? 0u : static_cast<GemmUnit>(p[1].bits) << 16);
  }
  [[gnu::always_inline]] static inline void transpose_8x8(const bfloat16* rows, std::size_t ld,
                                                          GemmUnit* to, std::size_t ld_to) {
    __m256 block[8];
    for (std::size_t i = 0; i < 8; ++i)
      block[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(rows + i * ld));
    simd::transpose_8x8(block, to, ld_to);
  }
};

}  // namespace avx512bf16

constinit const PackedGemmOf<bfloat16> kPackedGemmPairs =
    simd::packed_gemm_of<avx512bf16::PairUnit, 8, 2>();
constinit const AttentionOf<bfloat16> kAttentionPairs =
    simd::attention_of<avx512bf16::PairUnit, avx512bf16::PairUnit, 8, 2>();
double peak_avx512bf16(std::size_t iterations) {
  return simd::peak<avx512bf16::PairUnit>(iterations);
}

}  // namespace tandem::kernels
