#include "tandem/kernels/peak.h"

#include <algorithm>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/machine_kernels.h"

namespace tandem::kernels {
namespace {

float read(std::size_t count, const float* x) {
  float sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += x[i];
  return sum;
}

void copy(std::size_t count, const float* from, float* to) { std::copy_n(from, count, to); }

void update(std::size_t count, const float* grad, float* parameters, float* exp_avg,
            float* exp_avg_sq, bfloat16* copy_to) {
  for (std::size_t i = 0; i < count; ++i) {
    exp_avg[i] += grad[i];
    exp_avg_sq[i] += grad[i];
    parameters[i] += grad[i];
    if (copy_to != nullptr) copy_to[i] = to_bfloat16(parameters[i]);
  }
}

constexpr StreamLoops kStreamsPortable = {.read = read, .copy = copy, .update = update};

}  // namespace

std::vector<PeakFamily> peak_families(const CpuFeatures& cpu) {
  const MachineKernels& machine = machine_kernels();
  std::vector<PeakFamily> families;
  const auto add = [&](bool present, std::string_view name, const KernelGroup& group, bool bf16) {
    if (!present) return;
    families.push_back({name, bf16 ? "bf16" : "f32",
                        bf16 ? group.gemm->peak_bf16 : group.gemm->peak_f32, group.l1_peak});
  };
  add(cpu.avx2, "avx2", machine.avx2, false);
  add(cpu.avx512, "avx512", machine.avx512, false);
  add(cpu.avx512_bf16, "avx512bf16", machine.avx512bf16, true);
  add(cpu.amx_bf16, "amx", machine.amx, true);
  if (cpu.avx2) families.push_back({"avx2", "int8", machine.avx2.int8->peak, nullptr});
  if (cpu.avx512_vnni)
    families.push_back({"avx512vnni", "int8", machine.avx512vnni.int8->peak, nullptr});
  if (cpu.amx_int8) families.push_back({"amx", "int8", machine.amx.int8->peak, nullptr});
  if (families.empty()) families.push_back({"scalar", "f32", kGemmReference.peak_f32, nullptr});
  return families;
}

const StreamLoops& stream_loops(CpuFeatures cpu) {
  const MachineKernels& machine = machine_kernels();
  const StreamLoops* loops = cpu.avx512 ? machine.avx512.streams
                             : cpu.avx2 ? machine.avx2.streams
                                        : nullptr;
  return loops != nullptr ? *loops : kStreamsPortable;
}

}  // namespace tandem::kernels
