// Every operation on 256-bit vectors of f32.
#include "tandem/kernels/activation_simd.h"
#include "tandem/kernels/attention_vectors.h"
#include "tandem/kernels/elementwise_simd.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/optimizer_simd.h"
#include "tandem/kernels/peak_simd.h"
#include "tandem/kernels/simd/avx2.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {

using avx2::Vec;

constinit const PackedGemmOf<float> kPackedGemmFloat256 =
    simd::packed_gemm_of<simd::FloatUnit<Vec, float>, 4, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmWidened256 =
    simd::packed_gemm_of<simd::FloatUnit<Vec, bfloat16>, 4, 3>();
double peak_avx2(std::size_t iterations) {
  return simd::peak<simd::FloatUnit<Vec, float>>(iterations);
}
double l1_peak_avx2(std::size_t iterations, const float* block) {
  return simd::l1_peak<simd::FloatUnit<Vec, float>>(iterations, block);
}
constinit const StreamLoops kStreamsAvx2 = simd::streams<Vec>();

constinit const AttentionOf<float> kAttentionFloat256 =
    simd::vector_attention_of<simd::FloatUnit<Vec, float>, simd::FloatUnit<Vec, float>, 4, 2>();
constinit const AttentionOf<bfloat16> kAttentionWidened256 =
    simd::vector_attention_of<simd::FloatUnit<Vec, bfloat16>, simd::FloatUnit<Vec, float>, 4, 2>();
constinit const RotaryKernels kRotaryAvx2 = simd::rotary_kernels<Vec>();
constinit const LayerNormKernels kLayerNormAvx2 = simd::layer_norm_kernels<Vec>();
constinit const ActivationKernels kActivationAvx2 = simd::activation_kernels<Vec>();
constinit const DropoutKernels kDropoutAvx2 = simd::dropout_kernels<Vec>();
constinit const OptimizerKernels kOptimizerAvx2 = simd::optimizer_kernels<Vec>();
constinit const ReduceKernels kReduceAvx2 = simd::reduce_kernels<Vec>();
constinit const MathFunctions kMathAvx2 = simd::math_functions<Vec>();

}  // namespace tandem::kernels
