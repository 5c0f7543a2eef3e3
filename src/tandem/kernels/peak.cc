#include "tandem/kernels/peak.h"

#include <algorithm>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/simd_kernels.h"

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

std::vector<PeakFamily> peak_families([[maybe_unused]] const CpuFeatures& cpu) {
  std::vector<PeakFamily> families;
#if defined(__x86_64__)
  if (cpu.avx2) families.push_back({"avx2", "f32", peak_avx2, l1_peak_avx2});
  if (cpu.avx512) families.push_back({"avx512", "f32", peak_avx512, l1_peak_avx512});
  if (cpu.avx512_bf16) {
    families.push_back({"avx512bf16", "bf16", peak_avx512bf16, l1_peak_avx512bf16});
  }
  if (cpu.amx_bf16) families.push_back({"amx", "bf16", peak_amx, l1_peak_amx});
  if (cpu.avx2) families.push_back({"avx2", "int8", kInt8Avx2.peak, nullptr});
  if (cpu.avx512_vnni) families.push_back({"avx512vnni", "int8", kInt8Avx512Vnni.peak, nullptr});
#endif
  if (families.empty()) families.push_back({"scalar", "f32", kGemmReference.peak_f32, nullptr});
  return families;
}

const StreamLoops& stream_loops([[maybe_unused]] const CpuFeatures& cpu) {
#if defined(__x86_64__)
  if (cpu.avx512) return kStreamsAvx512;
  if (cpu.avx2) return kStreamsAvx2;
#endif
  return kStreamsPortable;
}

}  // namespace tandem::kernels
