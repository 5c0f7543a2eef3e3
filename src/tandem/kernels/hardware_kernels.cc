#include "tandem/kernels/gemm_onednn.h"
#include "tandem/kernels/gemm_packed.h"
#include "tandem/kernels/gemm_rows.h"
#include "tandem/kernels/machine_kernels.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {
namespace {

#if defined(__x86_64__)
constexpr PackedGemm kBlocksAvx2 = {.f32 = &kPackedGemmFloat256, .bf16 = &kPackedGemmWidened256};
constexpr PackedGemm kBlocksAvx512 = {.f32 = &kPackedGemmFloat512, .bf16 = &kPackedGemmWidened512};
constexpr PackedGemm kBlocksPairs = {.f32 = &kPackedGemmFloat512, .bf16 = &kPackedGemmPairs};
constexpr PackedGemm kBlocksTiles = {
    .f32 = &kPackedGemmFloat512, .bf16 = nullptr, .rows = &kRowsGemmTiles};

constexpr GemmKernels kGemmAvx2 = packed_gemm_kernels(&kBlocksAvx2, peak_avx2, peak_avx2);
constexpr GemmKernels kGemmAvx512 = packed_gemm_kernels(&kBlocksAvx512, peak_avx512, peak_avx512);
constexpr GemmKernels kGemmAvx512Bf16 =
    packed_gemm_kernels(&kBlocksPairs, peak_avx512, peak_avx512bf16);
constexpr GemmKernels kGemmAmx = rows_gemm_kernels(&kBlocksTiles, peak_avx512, peak_amx);

constexpr AttentionKernels kAttentionAvx2 = {.f32 = &kAttentionFloat256,
                                             .bf16 = &kAttentionWidened256};
constexpr AttentionKernels kAttentionAvx512 = {.f32 = &kAttentionFloat512,
                                               .bf16 = &kAttentionWidened512};
constexpr AttentionKernels kAttentionAvx512Bf16 = {.f32 = &kAttentionFloat512,
                                                   .bf16 = &kAttentionPairs};
constexpr AttentionKernels kAttentionAmx = {.f32 = &kAttentionFloat512, .bf16 = &kAttentionTiles};
#endif

constexpr MachineKernels kHardware = {
#if defined(__x86_64__)
    .avx2 = {.gemm = &kGemmAvx2,
             .attention = &kAttentionAvx2,
             .rotary = &kRotaryAvx2,
             .layer_norm = &kLayerNormAvx2,
             .activation = &kActivationAvx2,
             .dropout = &kDropoutAvx2,
             .optimizer = &kOptimizerAvx2,
             .reduce = &kReduceAvx2,
             .int8 = &kInt8Avx2,
             .l1_peak = l1_peak_avx2,
             .streams = &kStreamsAvx2},
    .avx512 = {.gemm = &kGemmAvx512,
               .attention = &kAttentionAvx512,
               .rotary = &kRotaryAvx512,
               .layer_norm = &kLayerNormAvx512,
               .activation = &kActivationAvx512,
               .dropout = &kDropoutAvx512,
               .optimizer = &kOptimizerAvx512,
               .reduce = &kReduceAvx512,
               .l1_peak = l1_peak_avx512,
               .streams = &kStreamsAvx512},
    .avx512bf16 = {.gemm = &kGemmAvx512Bf16,
                   .attention = &kAttentionAvx512Bf16,
                   .l1_peak = l1_peak_avx512bf16},
    .avx512vnni = {.int8 = &kInt8Avx512Vnni},
    .amx = {.gemm = &kGemmAmx,
            .attention = &kAttentionAmx,
            .int8 = &kInt8Amx,
            .l1_peak = l1_peak_amx},
#endif
    .onednn = {.gemm = &kGemmOneDnn}};

}  // namespace

const MachineKernels& hardware_kernels() { return kHardware; }

}  // namespace tandem::kernels
