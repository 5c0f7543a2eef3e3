// Internal: the implementations of combine.h.
#pragma once

#include "tandem/kernels/combine.h"

namespace tandem::kernels {

extern const CombineKernels kCombineReference;
extern const CombineKernels kCombineAvx2;
extern const CombineKernels kCombineAvx512;

}  // namespace tandem::kernels
