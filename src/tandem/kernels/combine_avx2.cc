// The loops of combine.h on 256-bit vectors.
#include "tandem/kernels/combine_simd.h"
#include "tandem/kernels/combine_tables.h"
#include "tandem/kernels/simd/avx2.h"

namespace tandem::kernels {

constinit const CombineKernels kCombineAvx2 = simd::combine_kernels<avx2::Vec>("avx2");

}  // namespace tandem::kernels
