// Internal: what the sources compiled for one instruction set provide to the tables of
// kernel_set.cc.
#pragma once

#include <cstddef>

#include "tandem/kernels/gemm_packed.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/peak.h"

namespace tandem::kernels {

// The elementary functions behind the operations, for the test of their accuracy.
struct MathFunctions {
  void (*exp)(std::size_t count, const float* x, float* y);
  void (*erf)(std::size_t count, const float* x, float* y);
};

extern const PackedGemmOf<float> kPackedGemmFloat256;
extern const PackedGemmOf<bfloat16> kPackedGemmWidened256;
double peak_avx2(std::size_t iterations);

extern const PackedGemmOf<float> kPackedGemmFloat512;
extern const PackedGemmOf<bfloat16> kPackedGemmWidened512;
double peak_avx512(std::size_t iterations);

extern const PackedGemmOf<bfloat16> kPackedGemmPairs;
double peak_avx512bf16(std::size_t iterations);

// For peak.h.
double l1_peak_avx2(std::size_t iterations, const float* block);
double l1_peak_avx512(std::size_t iterations, const float* block);
double l1_peak_avx512bf16(std::size_t iterations, const float* block);
extern const StreamLoops kStreamsAvx2;
extern const StreamLoops kStreamsAvx512;

extern const AttentionKernels kAttentionAvx2;
extern const LayerNormKernels kLayerNormAvx2;
extern const ActivationKernels kActivationAvx2;
extern const DropoutKernels kDropoutAvx2;
extern const OptimizerKernels kOptimizerAvx2;
extern const ReduceKernels kReduceAvx2;
extern const MathFunctions kMathAvx2;

extern const AttentionKernels kAttentionAvx512;
extern const LayerNormKernels kLayerNormAvx512;
extern const ActivationKernels kActivationAvx512;
extern const DropoutKernels kDropoutAvx512;
extern const OptimizerKernels kOptimizerAvx512;
extern const ReduceKernels kReduceAvx512;
extern const MathFunctions kMathAvx512;

}  // namespace tandem::kernels
