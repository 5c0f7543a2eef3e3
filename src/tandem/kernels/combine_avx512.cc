// The loops of combine.h on 512-bit vectors.
#include "tandem/kernels/combine_simd.h"
#include "tandem/kernels/combine_tables.h"
#include "tandem/kernels/simd/avx512.h"

namespace tandem::kernels {

constinit const CombineKernels kCombineAvx512 = simd::combine_kernels<avx512::Vec>("avx512");

}  // namespace tandem::kernels
