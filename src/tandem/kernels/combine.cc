#include "tandem/kernels/combine.h"

#include <array>
#include <string>

#include "tandem/core/error.h"
#include "tandem/kernels/combine_tables.h"

namespace tandem::kernels {
namespace {

struct Row {
  const CombineKernels* kernels;  // null: not in this build
  bool runs;
  const char* missing;
};

// Fastest first.
std::array<Row, 3> table(const CpuFeatures& cpu) {
  const MachineCombine& machine = machine_combine();
  return {{{machine.avx512, cpu.avx512, "this CPU has no AVX-512 (F, BW, DQ, VL)"},
           {machine.avx2, cpu.avx2, "this CPU has no AVX2, FMA and F16C"},
           {&kCombineReference, true, ""}}};
}

}  // namespace

const CombineKernels& select_combine(const CpuFeatures& cpu, std::string_view forced) {
  std::string names;
  for (const Row& row : table(cpu)) {
    if (row.kernels == nullptr) continue;
    if (forced.empty() ? row.runs : row.kernels->implementation == forced) {
      if (!row.runs) raise<ConfigError>("combine={}: {}", forced, row.missing);
      return *row.kernels;
    }
    names += (names.empty() ? "" : ", ") + std::string(row.kernels->implementation);
  }
  raise<ConfigError>("combine={}: there is no such implementation; there are {}", forced, names);
}

}  // namespace tandem::kernels
