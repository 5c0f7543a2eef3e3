// The machine of programs that can claim to run on another processor: linked as an object, it
// replaces machine_combine.cc and machine_kernels.cc.
#include "emulated_cpu/claimed_cpu.h"
#include "tandem/core/env.h"
#include "tandem/kernels/combine_tables.h"

namespace tandem::kernels {
namespace {

emulated::ClaimedCpu claim() {
  return emulated::parse_claim(Environment::from_process().get("TANDEM_EMULATED_CPU").value_or(""),
                               CpuFeatures::of_processor());
}

// All implementations compute the same bits.
CombineKernels reference_as(std::string_view name) {
  CombineKernels kernels = kCombineReference;
  kernels.implementation = name;
  return kernels;
}

}  // namespace

CpuFeatures machine_features() { return claim().shown; }

const MachineKernels& machine_kernels() {
  static const MachineKernels kernels = emulated::kernels_on(claim().executed);
  return kernels;
}

const MachineCombine& machine_combine() {
  static const CombineKernels avx2 = reference_as("avx2");
  static const CombineKernels avx512 = reference_as("avx512");
  static const MachineCombine combine = [] {
    MachineCombine c = {.avx2 = &avx2, .avx512 = &avx512};
#if defined(__x86_64__)
    const CpuFeatures cpu = claim().executed;
    if (cpu.avx2) c.avx2 = &kCombineAvx2;
    if (cpu.avx512) c.avx512 = &kCombineAvx512;
#endif
    return c;
  }();
  return combine;
}

}  // namespace tandem::kernels
