// A processor of another class than the machine's: the features it claims, and the code that
// emulates instructions that the machine lacks.
#pragma once

#include <array>
#include <string_view>

#include "tandem/kernels/cpu_features.h"
#include "tandem/kernels/machine_kernels.h"

namespace tandem::kernels::emulated {

struct CpuClass {
  std::string_view name;
  CpuFeatures features;
};

// As processors of each class show them: every class but amx and avx512bf16 stands for all that is
// below it. From the lowest to the highest.
inline constexpr std::array<CpuClass, 6> kCpuClasses = {{
    {"reference", {}},
    {"avx2", {.avx2 = true}},
    {"avx512", {.avx2 = true, .avx512 = true}},
    {"avx512vnni", {.avx2 = true, .avx512 = true, .avx512_vnni = true}},
    {"avx512bf16", {.avx2 = true, .avx512 = true, .avx512_bf16 = true, .avx512_vnni = true}},
    {"amx",
     {.avx2 = true,
      .avx512 = true,
      .avx512_bf16 = true,
      .avx512_vnni = true,
      .amx_bf16 = true,
      .amx_int8 = true}},
}};

// Throws ConfigError for an unknown name.
const CpuClass& class_named(std::string_view name);

// The value of TANDEM_EMULATED_CPU: CLASS, or CLASS/REAL, where REAL is a class that the machine
// has. Then no instruction beyond REAL's is executed: what a machine of REAL does that claims
// CLASS.
struct ClaimedCpu {
  CpuFeatures shown;
  CpuFeatures executed;
};
// An empty text claims nothing. Throws ConfigError.
ClaimedCpu parse_claim(std::string_view text, const CpuFeatures& processor);

// The groups of the tables on a machine that executes `executed`: the hardware's, and emulations
// of the rest.
MachineKernels kernels_on(const CpuFeatures& executed);

}  // namespace tandem::kernels::emulated
