// The loops of peak.h for AVX512_BF16.
#include <immintrin.h>

#include "tandem/kernels/peak_simd.h"
#include "tandem/kernels/simd/avx512.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {
namespace avx512bf16 {

struct PeakUnit {
  using V = avx512::Vec;
  static constexpr std::size_t kReduced = 2;
  [[gnu::always_inline]] static inline V multiply_add(__m512i a, __m512i b, V sum) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }
};

}  // namespace avx512bf16

double l1_peak_avx512bf16(std::size_t iterations, const float* block) {
  return simd::l1_peak<avx512bf16::PeakUnit>(iterations, block);
}

}  // namespace tandem::kernels
