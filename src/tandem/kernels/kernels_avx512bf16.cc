// Products with vdpbf16ps (AVX512_BF16: Zen 4 and 5, Cooper Lake, Sapphire Rapids); f32 products
// are those of kernels_avx512.cc.
#include "tandem/kernels/attention_vectors.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/peak_simd.h"
#include "tandem/kernels/simd/avx512bf16.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {
namespace avx512bf16 {

using Unit = simd::PairUnit<Vec, Vdpbf16ps>;

}  // namespace avx512bf16

constinit const PackedGemmOf<bfloat16> kPackedGemmPairs =
    simd::packed_gemm_of<avx512bf16::Unit, 8, 3>();
constinit const AttentionOf<bfloat16> kAttentionPairs =
    simd::vector_attention_of<avx512bf16::Unit, avx512bf16::Unit, 8, 2>();

void round_operands_avx512bf16(std::size_t count, const float* x, bfloat16* to) {
  simd::round_operands<avx512bf16::Unit>(count, x, to);
}

void exp2_of_operands_avx512bf16(std::size_t count, const float* x, float* to) {
  simd::exp2_of_operands<avx512bf16::Unit>(count, x, to);
}

double peak_avx512bf16(std::size_t iterations) { return simd::peak<avx512bf16::Unit>(iterations); }

double l1_peak_avx512bf16(std::size_t iterations, const float* block) {
  return simd::l1_peak<avx512bf16::Unit>(iterations, block);
}

void pair_dots_avx512bf16(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
                          float* sums) {
  simd::pair_dots<avx512bf16::Unit>(count, a, b, sums);
}

}  // namespace tandem::kernels
