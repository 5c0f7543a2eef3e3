#include "tandem/kernels/combine.h"

#include <string>

#include "tandem/core/error.h"
#include "tandem/kernels/combine_tables.h"

namespace tandem::kernels {
namespace {

struct Row {
  const CombineKernels* kernels;
  bool CpuFeatures::*needs;  // null: nothing
  const char* missing;
};

// Fastest first.
constexpr Row kTable[] = {
#if defined(__x86_64__)
    {&kCombineAvx512, &CpuFeatures::avx512, "this CPU has no AVX-512 (F, BW, DQ, VL)"},
    {&kCombineAvx2, &CpuFeatures::avx2, "this CPU has no AVX2, FMA and F16C"},
#endif
    {&kCombineReference, nullptr, ""},
};

}  // namespace

const CombineKernels& select_combine(const CpuFeatures& cpu, std::string_view forced) {
  std::string names;
  for (const Row& row : kTable) {
    const bool runs = row.needs == nullptr || cpu.*row.needs;
    if (forced.empty() ? runs : row.kernels->implementation == forced) {
      if (!runs) raise<ConfigError>("combine={}: {}", forced, row.missing);
      return *row.kernels;
    }
    names += (names.empty() ? "" : ", ") + std::string(row.kernels->implementation);
  }
  raise<ConfigError>("combine={}: there is no such implementation; there are {}", forced, names);
}

}  // namespace tandem::kernels
