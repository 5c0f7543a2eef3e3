// Internal: the product of bf16 in whole rows of C, for kernels whose sums become elements of C at
// once. The driver here does not depend on the instruction set; the kernels are gemm_tile_rows.h.
//
// B is packed into panels before all else, at most 32 MB at a time. A chunk computes rows of C at
// some columns over the whole reduction. No sum depends on how C is cut, so the cut may depend on
// the number of threads.
#pragma once

#include <cstddef>

#include "tandem/core/buffer.h"
#include "tandem/kernels/gemm_packed.h"

namespace tandem::kernels {

// Told of every piece of the reduction of A just before it is packed.
struct SlabObserver {
  void (*slab)(void* self, std::size_t count) = nullptr;
  void* self = nullptr;
};

// c[rows, columns] = (c +) A B + bias over the whole reduction.
struct GemmRows {
  std::size_t rows = 0, columns = 0, reduced = 0;
  GemmOperand<bfloat16> a;
  std::size_t first_row = 0;    // of A
  GemmBlockB b;                 // the panels of these columns
  const float* bias = nullptr;  // [columns] or null
  bool accumulate = false;
  bool transposed = false;      // c is [columns, rows]; then there is no bias
  bool stream = false;          // C is larger than the caches: it may be written past them
  GemmUnit* scratch = nullptr;  // RowsGemm::scratch() units
  SlabObserver observer = {};   // may be empty
};

// The instruction set's part. All functions are serial.
struct RowsGemm {
  std::size_t mr = 0, nr = 0;    // rows and columns of a block of sums
  std::size_t unit_granule = 1;  // panels have a multiple of this many units
  void (*pack_b)(const GemmOperand<bfloat16>&, std::size_t outer, std::size_t outer_count,
                 std::size_t reduced, std::size_t count, std::size_t panel_stride, GemmUnit* to);
  void (*rows_f32)(const GemmRows&, float* c, std::size_t ld);
  void (*rows_bf16)(const GemmRows&, bfloat16* c, std::size_t ld);
  std::size_t (*scratch)(std::size_t rows, std::size_t columns, std::size_t reduced,
                         bool a_is_rows);
};

// The product, with the kernels of ctx.kernels.gemm->packed->rows.
void rows_gemm(const Context& ctx, const Gemm<bfloat16, bfloat16>& gemm);
void rows_gemm(const Context& ctx, const Gemm<bfloat16, float>& gemm);

// The table of an implementation whose products of bf16 are these; those of f32 are packed_gemm().
constexpr GemmKernels rows_gemm_kernels(const PackedGemm* blocks, double (*peak_f32)(std::size_t),
                                        double (*peak_bf16)(std::size_t)) {
  GemmKernels kernels = packed_gemm_kernels(blocks, peak_f32, peak_bf16);
  kernels.bf16 = rows_gemm;
  kernels.bf16_to_f32 = rows_gemm;
  kernels.sums_a = true;
  return kernels;
}

// The panels of a weight [n, k] for Gemm::b_panels; none where they do not fit at once.
Buffer rows_gemm_panels(const Context& ctx, std::size_t n, std::size_t k, const bfloat16* weight);

}  // namespace tandem::kernels
