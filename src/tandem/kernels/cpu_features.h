// Features of the processor that the operating system enables.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tandem::kernels {

struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // AVX-512 F, BW, DQ, VL
  bool avx512_bf16 = false;  // vdpbf16ps
  bool avx512_vnni = false;  // vpdpbusd
  bool amx_bf16 = false;     // AMX tiles with bf16, which this process may use
  bool amx_int8 = false;     // the same with 8-bit integers
  // Why amx_bf16 is false although the processor has it; otherwise empty.
  std::string_view amx_obstacle = {};

  // Features of this processor. On processors with AMX, asks Linux for the permission to use tiles.
  // Once granted it holds for all threads of the process. May be called at any time from any
  // thread.
  static CpuFeatures of_processor();
  // machine_features() less what TANDEM_CPU_FEATURES hides. As of_processor(), but throws
  // ConfigError as limited_to() does.
  static CpuFeatures detect();
  // These features less all that `names` (the value of TANDEM_CPU_FEATURES) does not name: a list
  // of avx2, avx512, avx512_vnni, avx512_bf16, amx_bf16 and amx_int8, each with what it stands on
  // (avx512 is AVX2 too), or none; the classes of TANDEM_KERNELS (reference, avx512bf16, amx, …)
  // are names for the same. Throws ConfigError for an unknown name and for a feature that is not
  // there.
  CpuFeatures limited_to(std::string_view names) const;
  // "AVX2, AVX-512, AVX512_BF16, AVX512_VNNI", or "no vector extension that tandem uses".
  std::string describe() const;
};

// All of them, for loops.
inline constexpr std::array<bool CpuFeatures::*, 6> kCpuFlags = {
    &CpuFeatures::avx2,        &CpuFeatures::avx512,   &CpuFeatures::avx512_bf16,
    &CpuFeatures::avx512_vnni, &CpuFeatures::amx_bf16, &CpuFeatures::amx_int8};

// The features behind detect(): of_processor(). The test build of the program has another
// definition of this function, where another class can be claimed (tests/emulated_cpu).
CpuFeatures machine_features();

}  // namespace tandem::kernels
