// Internal: the product through oneDNN.
#pragma once

#include <cstddef>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {

extern const GemmKernels kGemmOneDnn;

}  // namespace tandem::kernels
