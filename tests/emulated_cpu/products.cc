// The products and attention of kernels_avx512.cc, kernels_avx512bf16.cc and kernels_amx.cc with
// plain C++ instead of the instructions: the same templates, the same bits, any CPU.
#include "emulated_cpu/emulated_kernels.h"
#include "emulated_cpu/tiles.h"
#include "emulated_cpu/vectors.h"
#include "tandem/kernels/attention_tiles.h"
#include "tandem/kernels/attention_vectors.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/gemm_tile_rows.h"

namespace tandem::kernels::emulated {
namespace {

struct RoundingTiles : Tiles {
  using Tiles::Tiles;
  static Rounded rounded(const simd::Twice<Vec>& x) { return Vdpbf16ps::rounded(x); }
};

using FloatUnit = simd::FloatUnit<Vec, float>;
using WidenedUnit = simd::FloatUnit<Vec, bfloat16>;
using PairUnit = simd::PairUnit<Vec, Vdpbf16ps>;
using TileUnit = simd::PairUnit<Vec, RoundingTiles>;

}  // namespace

constinit const PackedGemmOf<float> kPackedGemmFloat = simd::packed_gemm_of<FloatUnit, 8, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmWidened =
    simd::packed_gemm_of<WidenedUnit, 8, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmPairs = simd::packed_gemm_of<PairUnit, 8, 3>();
constinit const RowsGemm kRowsGemmTiles = simd::tiled_gemm_of<TileUnit>();

constinit const AttentionOf<float> kAttentionFloat =
    simd::vector_attention_of<FloatUnit, FloatUnit, 8, 2>();
constinit const AttentionOf<bfloat16> kAttentionWidened =
    simd::vector_attention_of<WidenedUnit, FloatUnit, 8, 2>();
constinit const AttentionOf<bfloat16> kAttentionPairs =
    simd::vector_attention_of<PairUnit, PairUnit, 8, 2>();
constinit const AttentionOf<bfloat16> kAttentionTiles =
    simd::attention_of<simd::TileProducts<TileUnit>>();

void round_operands(std::size_t count, const float* x, bfloat16* to) {
  simd::round_operands<PairUnit>(count, x, to);
}

void exp2_of_operands(std::size_t count, const float* x, float* to) {
  simd::exp2_of_operands<PairUnit>(count, x, to);
}

void pair_dots(std::size_t count, const std::uint32_t* a, const std::uint32_t* b, float* sums) {
  simd::pair_dots<PairUnit>(count, a, b, sums);
}

void tile_dot(const TileConfig& config, const TileDot& dot) { run_tile_dot<Tiles>(config, dot); }

}  // namespace tandem::kernels::emulated
