// Internal: the implementations of combine.h.
#pragma once

#include "tandem/kernels/combine.h"

namespace tandem::kernels {

extern const CombineKernels kCombineReference;
extern const CombineKernels kCombineAvx2;
extern const CombineKernels kCombineAvx512;

// Those behind the table of combine.cc: the processor's. The test build of the program has another
// definition, with emulations of what its CPU lacks (tests/emulated_cpu).
struct MachineCombine {
  const CombineKernels *avx2 = nullptr, *avx512 = nullptr;
};
const MachineCombine& machine_combine();

}  // namespace tandem::kernels
