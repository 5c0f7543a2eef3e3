// Every operation on 512-bit vectors of f32.
#include "tandem/kernels/activation_simd.h"
#include "tandem/kernels/attention_vectors.h"
#include "tandem/kernels/elementwise_simd.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/optimizer_simd.h"
#include "tandem/kernels/peak_simd.h"
#include "tandem/kernels/simd/avx512.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {

using avx512::Vec;

constinit const PackedGemmOf<float> kPackedGemmFloat512 =
    simd::packed_gemm_of<simd::FloatUnit<Vec, float>, 8, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmWidened512 =
    simd::packed_gemm_of<simd::FloatUnit<Vec, bfloat16>, 8, 3>();
double peak_avx512(std::size_t iterations) {
  return simd::peak<simd::FloatUnit<Vec, float>>(iterations);
}
double l1_peak_avx512(std::size_t iterations, const float* block) {
  return simd::l1_peak<simd::FloatUnit<Vec, float>>(iterations, block);
}
constinit const StreamLoops kStreamsAvx512 = simd::streams<Vec>();

constinit const AttentionOf<float> kAttentionFloat512 =
    simd::vector_attention_of<simd::FloatUnit<Vec, float>, simd::FloatUnit<Vec, float>, 8, 2>();
constinit const AttentionOf<bfloat16> kAttentionWidened512 =
    simd::vector_attention_of<simd::FloatUnit<Vec, bfloat16>, simd::FloatUnit<Vec, float>, 8, 2>();
constinit const RotaryKernels kRotaryAvx512 = simd::rotary_kernels<Vec>();
constinit const LayerNormKernels kLayerNormAvx512 = simd::layer_norm_kernels<Vec>();
constinit const ActivationKernels kActivationAvx512 = simd::activation_kernels<Vec>();
constinit const DropoutKernels kDropoutAvx512 = simd::dropout_kernels<Vec>();
constinit const OptimizerKernels kOptimizerAvx512 = simd::optimizer_kernels<Vec>();
constinit const ReduceKernels kReduceAvx512 = simd::reduce_kernels<Vec>();
constinit const MathFunctions kMathAvx512 = simd::math_functions<Vec>();

}  // namespace tandem::kernels
