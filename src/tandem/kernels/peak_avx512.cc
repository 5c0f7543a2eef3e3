// The loops of peak.h for AVX-512.
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/peak_simd.h"
#include "tandem/kernels/simd/avx512.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {

using avx512::Vec;

double l1_peak_avx512(std::size_t iterations, const float* block) {
  return simd::l1_peak<simd::FloatUnit<Vec, float>>(iterations, block);
}

constinit const StreamLoops kStreamsAvx512 = simd::streams<Vec>();

}  // namespace tandem::kernels
