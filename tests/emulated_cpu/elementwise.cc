// Counterparts of kernels_avx512.cc other than products and attention, with plain C++ instead of
// the instructions: the same templates, the same bits, any CPU.
#include "emulated_cpu/emulated_kernels.h"
#include "emulated_cpu/vectors.h"
#include "tandem/kernels/activation_simd.h"
#include "tandem/kernels/elementwise_simd.h"
#include "tandem/kernels/optimizer_simd.h"

namespace tandem::kernels::emulated {

constinit const RotaryKernels kRotary = simd::rotary_kernels<Vec>();
constinit const LayerNormKernels kLayerNorm = simd::layer_norm_kernels<Vec>();
constinit const ActivationKernels kActivation = simd::activation_kernels<Vec>();
constinit const DropoutKernels kDropout = simd::dropout_kernels<Vec>();
constinit const OptimizerKernels kOptimizer = simd::optimizer_kernels<Vec>();
constinit const ReduceKernels kReduce = simd::reduce_kernels<Vec>();
constinit const MathFunctions kMath = simd::math_functions<Vec>();

}  // namespace tandem::kernels::emulated
