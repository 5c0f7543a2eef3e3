#include "emulated_cpu/emulated_kernels.h"

#include "tandem/kernels/cpu_features.h"

namespace tandem::kernels::emulated {
namespace {

// Rates that stand to one another about as the hardware's do, so that a job's message about bf16 is
// the same; in themselves they are the rate of plain C++.
double peak(std::size_t iterations) { return kGemmReference.peak_f32(iterations); }
double peak_of_pairs(std::size_t iterations) { return 2 * peak(iterations); }
double peak_of_tiles(std::size_t iterations) { return 16 * peak(iterations); }

constexpr PackedGemm kBlocks = {.f32 = &kPackedGemmFloat, .bf16 = &kPackedGemmWidened};
constexpr GemmKernels kGemm = packed_gemm_kernels(&kBlocks, peak, peak);
constexpr AttentionKernels kAttention = {.f32 = &kAttentionFloat, .bf16 = &kAttentionWidened};
constexpr AttentionKernels kAttentionOfPairs = {.f32 = &kAttentionFloat, .bf16 = &kAttentionPairs};
constexpr AttentionKernels kAttentionOfTiles = {.f32 = &kAttentionFloat, .bf16 = &kAttentionTiles};

// f32 products with the vectors of this CPU.
const PackedGemmOf<float>& fastest_f32() {
#if defined(__x86_64__)
  const CpuFeatures cpu = CpuFeatures::of_processor();
  if (cpu.avx512) return kPackedGemmFloat512;
  if (cpu.avx2) return kPackedGemmFloat256;
#endif
  return kPackedGemmFloat;
}

template <const PackedGemmOf<bfloat16>& kBf16, double (*kPeak)(std::size_t)>
const GemmKernels& gemm_of() {
  static const PackedGemm blocks = {.f32 = &fastest_f32(), .bf16 = &kBf16};
  static const GemmKernels gemm = packed_gemm_kernels(&blocks, peak, kPeak);
  return gemm;
}

const GemmKernels& gemm_of_tiles() {
  static const PackedGemm blocks = {
      .f32 = &fastest_f32(), .bf16 = nullptr, .rows = &kRowsGemmTiles};
  static const GemmKernels gemm = rows_gemm_kernels(&blocks, peak, peak_of_tiles);
  return gemm;
}

// oneDNN itself detects the CPU, and where that has no AVX-512 it has no products of bf16.
const GemmKernels& onednn() {
  static const GemmKernels gemm = [] {
    GemmKernels g = *hardware_kernels().onednn.gemm;
    g.bf16 = kGemmReference.bf16;
    g.bf16_to_f32 = kGemmReference.bf16_to_f32;
    return g;
  }();
  return gemm;
}

MachineKernels all_groups() {
  MachineKernels kernels;
  kernels.avx512 = {.gemm = &kGemm,
                    .attention = &kAttention,
                    .rotary = &kRotary,
                    .layer_norm = &kLayerNorm,
                    .activation = &kActivation,
                    .dropout = &kDropout,
                    .optimizer = &kOptimizer,
                    .reduce = &kReduce};
  kernels.avx2 = kernels.avx512;
  kernels.avx2.int8 = &kInt8Reference;
  kernels.avx512bf16 = {.gemm = &gemm_of<kPackedGemmPairs, peak_of_pairs>(),
                        .attention = &kAttentionOfPairs};
  kernels.avx512vnni = {.int8 = &int8_avx512vnni()};
  kernels.amx = {.gemm = &gemm_of_tiles(), .attention = &kAttentionOfTiles, .int8 = &int8_amx()};
  kernels.onednn = {.gemm = &onednn()};
  return kernels;
}

}  // namespace

const MachineKernels& emulated_kernels() {
  static const MachineKernels kernels = all_groups();
  return kernels;
}

}  // namespace tandem::kernels::emulated
