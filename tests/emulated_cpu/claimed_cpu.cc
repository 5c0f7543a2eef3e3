#include "emulated_cpu/claimed_cpu.h"

#include <string>

#include "emulated_cpu/emulated_kernels.h"
#include "tandem/core/error.h"

namespace tandem::kernels::emulated {

const CpuClass& class_named(std::string_view name) {
  std::string names;
  for (const CpuClass& one : kCpuClasses) {
    if (one.name == name) return one;
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  raise<ConfigError>(
      "TANDEM_EMULATED_CPU: unknown class of processors '{}'; expected one of {}, or CLASS/REAL",
      name, names);
}

ClaimedCpu parse_claim(std::string_view text, const CpuFeatures& processor) {
  if (text.empty()) return {.shown = processor, .executed = processor};
  const std::size_t slash = text.find('/');
  const CpuFeatures shown = class_named(text.substr(0, slash)).features;
  if (slash == std::string_view::npos) return {.shown = shown, .executed = processor};
  const CpuFeatures real = class_named(text.substr(slash + 1)).features;
  for (const auto flag : kCpuFlags) {
    if (real.*flag && !(processor.*flag))
      raise<ConfigError>("TANDEM_EMULATED_CPU: this machine cannot execute as {}; found: {}",
                         text.substr(slash + 1), processor.describe());
  }
  return {.shown = shown, .executed = real};
}

MachineKernels kernels_on(const CpuFeatures& executed) {
  const MachineKernels& hardware = hardware_kernels();
  MachineKernels kernels = emulated_kernels();
  if (executed.avx2) kernels.avx2 = hardware.avx2;
  if (executed.avx512) kernels.avx512 = hardware.avx512;
  if (executed.avx512) kernels.onednn = hardware.onednn;
  if (executed.avx512_bf16) kernels.avx512bf16 = hardware.avx512bf16;
  if (executed.avx512_vnni) kernels.avx512vnni = hardware.avx512vnni;
  if (executed.amx_bf16) kernels.amx.gemm = hardware.amx.gemm;
  if (executed.amx_bf16 && executed.avx512_bf16) {
    kernels.amx.attention = hardware.amx.attention;
    kernels.amx.l1_peak = hardware.amx.l1_peak;
  }
  if (executed.amx_int8) kernels.amx.int8 = hardware.amx.int8;
  return kernels;
}

}  // namespace tandem::kernels::emulated
