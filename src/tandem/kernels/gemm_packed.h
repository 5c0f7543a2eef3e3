// Internal: the matrix product on packed blocks (Goto and van de Geijn 2008), the part that does
// not depend on the instruction set.
//
// The reduction is counted in units of 32 bits: one f32, or two bf16 that follow one another in the
// reduction (what vdpbf16ps eats). B is packed into panels [units][nr]. A is staged as rows [units]
// when its reduction is contiguous in memory, otherwise as panels [units][mr]. A micro-kernel
// multiplies mr rows of A with one panel of B and keeps the mr x nr sums in registers.
//
// C is cut into tiles by size; one chunk computes a tile over the whole reduction, in slices whose
// A rows and B panel fit the L2 and L1 caches, and adds the slices in order in an f32 tile of its
// own. So no sum depends on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {

using GemmUnit = std::uint32_t;

// Upper limits of the parts into which a product is cut. They decide the speed, never a bit of the
// result.
struct GemmBlocks {
  std::size_t tile_rows = 0, tile_columns = 0;  // tile of C
  std::size_t slice_units = 0;                  // slice of the reduction
};

// A staged slice of A. The layout inside a panel is the instruction set's own.
struct GemmBlockA {
  const GemmUnit* data = nullptr;
  bool panels = false;
  std::size_t stride = 0;  // rows: units between rows; panels: units between panels
};

struct GemmBlockB {
  const GemmUnit* data = nullptr;
  std::size_t panel_stride = 0;  // units between panels
  bool kept = false;             // packed by pack_kept
};

// An operand's slice that is to be packed: elements [reduced, reduced + count) of rows or columns
// [outer, outer + outer_count).
template <class T>
struct GemmPacking {
  GemmOperand<T> from;
  std::size_t outer = 0, outer_count = 0;
  std::size_t reduced = 0, count = 0;
  GemmUnit* to = nullptr;
  std::size_t panel_stride = 0;
};

// Rows of cache lines that will be written soon.
struct GemmLines {
  const std::byte* data = nullptr;
  std::size_t stride = 0;  // bytes between rows
  std::size_t rows = 0, lines = 0;
};

// tile[rows, columns] = or += A B over a slice of the reduction. The tile has room for whole groups
// of mr rows and of nr columns, and what is computed beyond `rows` and `columns` means nothing.
template <class T>
struct GemmSlice {
  std::size_t units = 0, rows = 0, columns = 0;
  GemmBlockA a;
  GemmBlockB b;
  float* tile = nullptr;
  std::size_t ld = 0;
  bool accumulate = false;
  // With a kept B whose units are pairs: room for a panel of `units` units.
  GemmUnit* widened = nullptr;
  // The next slice of A and B, or null. A kernel may pack some of it, from the front of the
  // reduction, while it multiplies, and takes off what it has done.
  GemmPacking<T>* next_a = nullptr;
  GemmPacking<T>* next_b = nullptr;
  // The product has no other rows, and its B is packed: each panel is read once. The first panel of
  // the next slice, or null.
  bool b_once = false;
  const GemmUnit* next_b_panels = nullptr;
  // With the last slice: where the tile goes afterwards. A kernel may fetch it while it multiplies.
  GemmLines to_write = {};
};

// The instruction set's part. All functions are serial.
template <class T>
struct PackedGemmOf {
  std::size_t mr = 0, nr = 0;
  std::size_t reduced_per_unit = 0;
  std::size_t kept_per_unit = 0;  // of pack_kept: reduced_per_unit or twice as many
  std::size_t slice_granule = 1;  // slices begin at multiples of this many units
  GemmBlocks blocks_b_ahead;      // when B is packed once, before all tiles
  GemmBlocks blocks_b_staged;     // when every tile packs its part of B
  // Elements [reduced, reduced + count) of rows or columns [outer, outer + outer_count),
  // zero-padded to whole units and whole groups of mr or nr.
  void (*stage_rows)(const GemmOperand<T>&, std::size_t outer, std::size_t outer_count,
                     std::size_t reduced, std::size_t count, std::size_t stride, GemmUnit* to);
  void (*pack_a)(const GemmOperand<T>&, std::size_t outer, std::size_t outer_count,
                 std::size_t reduced, std::size_t count, std::size_t panel_stride, GemmUnit* to);
  void (*pack_b)(const GemmOperand<T>&, std::size_t outer, std::size_t outer_count,
                 std::size_t reduced, std::size_t count, std::size_t panel_stride, GemmUnit* to);
  // As pack_b, for weights that are kept packed: bf16 that the product widens stays in pairs. Few
  // rows wait for the panels' bytes.
  void (*pack_kept)(const GemmOperand<T>&, std::size_t outer, std::size_t outer_count,
                    std::size_t reduced, std::size_t count, std::size_t panel_stride, GemmUnit* to);
  void (*multiply)(const GemmSlice<T>&);
  // c[rows, columns] = (c +) tile + bias.
  void (*store_f32)(std::size_t rows, std::size_t columns, const float* tile, std::size_t ld_tile,
                    const float* bias, bool accumulate, float* c, std::size_t ld);
  void (*store_bf16)(std::size_t rows, std::size_t columns, const float* tile, std::size_t ld_tile,
                     const float* bias, bool accumulate, bfloat16* c, std::size_t ld);
};

struct RowsGemm;  // gemm_rows.h

struct PackedGemm {
  const PackedGemmOf<float>* f32 = nullptr;
  const PackedGemmOf<bfloat16>* bf16 = nullptr;
  const RowsGemm* rows = nullptr;  // instead of `bf16`
};

// The product, with the blocks of ctx.kernels.gemm->packed.
void packed_gemm(const Context& ctx, const Gemm<float, float>& gemm);
void packed_gemm(const Context& ctx, const Gemm<bfloat16, bfloat16>& gemm);
void packed_gemm(const Context& ctx, const Gemm<bfloat16, float>& gemm);

// The table of an implementation with these blocks; the peaks are those of its instructions.
constexpr GemmKernels packed_gemm_kernels(const PackedGemm* blocks, double (*peak_f32)(std::size_t),
                                          double (*peak_bf16)(std::size_t)) {
  return {.f32 = packed_gemm,
          .bf16 = packed_gemm,
          .bf16_to_f32 = packed_gemm,
          .peak_f32 = peak_f32,
          .peak_bf16 = peak_bf16,
          .packed = blocks};
}

}  // namespace tandem::kernels
