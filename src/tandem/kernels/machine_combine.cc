// Nothing else is defined here: the linker takes this file only where these functions have no other
// definition.
#include "tandem/kernels/combine_tables.h"
#include "tandem/kernels/cpu_features.h"

namespace tandem::kernels {

CpuFeatures machine_features() { return CpuFeatures::of_processor(); }

const MachineCombine& machine_combine() {
#if defined(__x86_64__)
  static constexpr MachineCombine kHardware = {.avx2 = &kCombineAvx2, .avx512 = &kCombineAvx512};
#else
  static constexpr MachineCombine kHardware = {};
#endif
  return kHardware;
}

}  // namespace tandem::kernels
