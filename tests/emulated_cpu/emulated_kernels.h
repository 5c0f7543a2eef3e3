// Every instruction set's kernels in plain C++: the templates of src/tandem/kernels over the
// vectors of vectors.h and the tiles of tiles.h. They compute the bits of the instructions on every
// CPU. Only tests and the test build of the program link them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/machine_kernels.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels::emulated {

// Counterparts of hardware_kernels() without an instruction of those sets. The f32 products that
// the bf16 kernels bring along are those of this CPU where it has vectors, for speed: all vector
// widths compute the same bits. oneDNN's group has no bf16 products of its own.
const MachineKernels& emulated_kernels();

// The vectors of AVX-512: products and attention (products.cc).
extern const PackedGemmOf<float> kPackedGemmFloat;
extern const PackedGemmOf<bfloat16> kPackedGemmWidened;
extern const PackedGemmOf<bfloat16> kPackedGemmPairs;
extern const RowsGemm kRowsGemmTiles;
extern const AttentionOf<float> kAttentionFloat;
extern const AttentionOf<bfloat16> kAttentionWidened;
extern const AttentionOf<bfloat16> kAttentionPairs;
extern const AttentionOf<bfloat16> kAttentionTiles;

// Passes over rows and arrays (elementwise.cc).
extern const RotaryKernels kRotary;
extern const LayerNormKernels kLayerNorm;
extern const ActivationKernels kActivation;
extern const DropoutKernels kDropout;
extern const OptimizerKernels kOptimizer;
extern const ReduceKernels kReduce;
extern const MathFunctions kMath;

// Products of 8-bit integers (int8.cc).
const Int8Kernels& int8_avx512vnni();
const Int8Kernels& int8_amx();

// The instructions alone; see simd_kernels.h.
void pair_dots(std::size_t count, const std::uint32_t* a, const std::uint32_t* b, float* sums);
void round_operands(std::size_t count, const float* x, bfloat16* to);
void exp2_of_operands(std::size_t count, const float* x, float* to);
void tile_dot(const TileConfig& config, const TileDot& dot);
void byte_dots(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
               std::int32_t* sums);

}  // namespace tandem::kernels::emulated
