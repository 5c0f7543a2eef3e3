// Internal: the implementations of each name, between the sources that have them and the tables of
// kernel_set.cc and peak.cc.
#pragma once

#include <cstddef>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/peak.h"

namespace tandem::kernels {

// The implementations of one name; null for an operation that has none of that name.
struct KernelGroup {
  const GemmKernels* gemm = nullptr;
  const AttentionKernels* attention = nullptr;
  const RotaryKernels* rotary = nullptr;
  const LayerNormKernels* layer_norm = nullptr;
  const ActivationKernels* activation = nullptr;
  const DropoutKernels* dropout = nullptr;
  const OptimizerKernels* optimizer = nullptr;
  const ReduceKernels* reduce = nullptr;
  const Int8Kernels* int8 = nullptr;
  // For peak.h.
  double (*l1_peak)(std::size_t iterations, const float* block) = nullptr;
  const StreamLoops* streams = nullptr;
};

struct MachineKernels {
  KernelGroup avx2{}, avx512{}, avx512bf16{}, avx512vnni{}, amx{}, onednn{};
};

// The sources compiled for each instruction set. A group runs only on a CPU with its instructions;
// on other processors than x86-64 all groups but oneDNN's are empty.
const MachineKernels& hardware_kernels();

// The groups behind the tables: hardware_kernels(). The test build of the program has another
// definition of this function, with emulations of what its CPU lacks (tests/emulated_cpu).
const MachineKernels& machine_kernels();

}  // namespace tandem::kernels
