// Internal: what the sources compiled for one instruction set provide to hardware_kernels.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/amx/tile_config.h"
#include "tandem/kernels/gemm_packed.h"
#include "tandem/kernels/gemm_rows.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/peak.h"

namespace tandem::kernels {

// The elementary functions behind the operations, for the test of their accuracy.
struct MathFunctions {
  void (*exp)(std::size_t count, const float* x, float* y);
  void (*exp2)(std::size_t count, const float* x, float* y);  // x < 128
  void (*erf)(std::size_t count, const float* x, float* y);
};

extern const PackedGemmOf<float> kPackedGemmFloat256;
extern const PackedGemmOf<bfloat16> kPackedGemmWidened256;
double peak_avx2(std::size_t iterations);

extern const PackedGemmOf<float> kPackedGemmFloat512;
extern const PackedGemmOf<bfloat16> kPackedGemmWidened512;
double peak_avx512(std::size_t iterations);

// The bf16 instructions alone, for the test of their emulations (tests/emulated_cpu).
// pair_dots: sums[i] += the two products of the pairs a[i] and b[i] (low halves first in the
// reduction); counts are multiples of 16.
// round_operands: to[i] = x[i] as an operand.
// exp2_of_operands: to[i] = 2^x[i], as exact as an operand; x < 128.
// tile_dot: see amx/tile_config.h.

extern const PackedGemmOf<bfloat16> kPackedGemmPairs;
extern const AttentionOf<bfloat16> kAttentionPairs;
double peak_avx512bf16(std::size_t iterations);
void pair_dots_avx512bf16(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
                          float* sums);
void round_operands_avx512bf16(std::size_t count, const float* x, bfloat16* to);
void exp2_of_operands_avx512bf16(std::size_t count, const float* x, float* to);

extern const RowsGemm kRowsGemmTiles;
extern const AttentionOf<bfloat16> kAttentionTiles;
double peak_amx(std::size_t iterations);
void tile_dot_amx(const TileConfig& config, const TileDot& dot);

// int8.h. The emulation of vpdpbusd is tested alone, too: byte_dots adds the four products of the
// bytes of a[i] (u8) and b[i] (s8) to sums[i]; counts are multiples of 16.
extern const Int8Kernels kInt8Avx2;
extern const Int8Kernels kInt8Avx512Vnni;
extern const Int8Kernels kInt8Amx;
void byte_dots_avx512vnni(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
                          std::int32_t* sums);

// For peak.h.
double l1_peak_avx2(std::size_t iterations, const float* block);
double l1_peak_avx512(std::size_t iterations, const float* block);
double l1_peak_avx512bf16(std::size_t iterations, const float* block);
double l1_peak_amx(std::size_t iterations, const float* block);
extern const StreamLoops kStreamsAvx2;
extern const StreamLoops kStreamsAvx512;

extern const AttentionOf<float> kAttentionFloat256;
extern const AttentionOf<bfloat16> kAttentionWidened256;
extern const RotaryKernels kRotaryAvx2;
extern const LayerNormKernels kLayerNormAvx2;
extern const ActivationKernels kActivationAvx2;
extern const DropoutKernels kDropoutAvx2;
extern const OptimizerKernels kOptimizerAvx2;
extern const ReduceKernels kReduceAvx2;
extern const MathFunctions kMathAvx2;

extern const AttentionOf<float> kAttentionFloat512;
extern const AttentionOf<bfloat16> kAttentionWidened512;
extern const RotaryKernels kRotaryAvx512;
extern const LayerNormKernels kLayerNormAvx512;
extern const ActivationKernels kActivationAvx512;
extern const DropoutKernels kDropoutAvx512;
extern const OptimizerKernels kOptimizerAvx512;
extern const ReduceKernels kReduceAvx512;
extern const MathFunctions kMathAvx512;

}  // namespace tandem::kernels
