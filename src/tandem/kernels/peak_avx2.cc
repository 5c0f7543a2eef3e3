// The loops of peak.h for AVX2 with FMA.
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/peak_simd.h"
#include "tandem/kernels/simd/avx2.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {

using avx2::Vec;

double l1_peak_avx2(std::size_t iterations, const float* block) {
  return simd::l1_peak<simd::FloatUnit<Vec, float>>(iterations, block);
}

constinit const StreamLoops kStreamsAvx2 = simd::streams<Vec>();

}  // namespace tandem::kernels
