// Products with vdpbf16ps (AVX512_BF16: Zen 4 and 5, Cooper Lake, Sapphire Rapids); f32 products
// are those of kernels_avx512.cc.
#include <immintrin.h>

#include "tandem/kernels/attention_simd.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/peak_simd.h"
#include "tandem/kernels/simd/avx512.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {
namespace avx512bf16 {

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

// Its plain C++ twin, with the definition: simd/emulated.h.
struct Vdpbf16ps {
  [[gnu::always_inline]] static inline Vec dot(__m512i a, __m512i b, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }
  [[gnu::always_inline]] static inline Rounded rounded(Vec x) { return {_mm512_cvtneps_pbh(x.v)}; }
};

using Unit = simd::PairUnit<Vec, Vdpbf16ps>;

}  // namespace avx512bf16

constinit const PackedGemmOf<bfloat16> kPackedGemmPairs =
    simd::packed_gemm_of<avx512bf16::Unit, 8, 3>();
constinit const AttentionOf<bfloat16> kAttentionPairs =
    simd::attention_of<avx512bf16::Unit, avx512bf16::Unit, 8, 2>();

double peak_avx512bf16(std::size_t iterations) { return simd::peak<avx512bf16::Unit>(iterations); }

double l1_peak_avx512bf16(std::size_t iterations, const float* block) {
  return simd::l1_peak<avx512bf16::Unit>(iterations, block);
}

void pair_dots_avx512bf16(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
                          float* sums) {
  simd::pair_dots<avx512bf16::Unit>(count, a, b, sums);
}

}  // namespace tandem::kernels
