// Nothing else is defined here: the linker takes this file only where machine_kernels() has no
// other definition.
#include "tandem/kernels/machine_kernels.h"

namespace tandem::kernels {

const MachineKernels& machine_kernels() { return hardware_kernels(); }

}  // namespace tandem::kernels
