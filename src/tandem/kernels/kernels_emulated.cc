// The products and attention of kernels_avx512.cc, kernels_avx512bf16.cc and kernels_amx.cc with
// plain C++ in the place of the instructions: the same templates, the same bits, any CPU.
#include "tandem/kernels/amx/tiles_emulated.h"
#include "tandem/kernels/attention_tiles.h"
#include "tandem/kernels/attention_vectors.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/gemm_tiles.h"
#include "tandem/kernels/simd/emulated.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {
namespace emulated {

struct RoundingTiles : Tiles {
  using Tiles::Tiles;
  static Rounded rounded(const Vec& x) { return Vdpbf16ps::rounded(x); }
};

}  // namespace emulated

using emulated::Vec;
using Floats = simd::FloatUnit<Vec, float>;
using Widened = simd::FloatUnit<Vec, bfloat16>;
using Pairs = simd::PairUnit<Vec, emulated::Vdpbf16ps>;
using Tiles = simd::PairUnit<Vec, emulated::RoundingTiles>;

constinit const PackedGemmOf<float> kPackedGemmFloatEmulated = simd::packed_gemm_of<Floats, 8, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmWidenedEmulated =
    simd::packed_gemm_of<Widened, 8, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmPairsEmulated =
    simd::packed_gemm_of<Pairs, 8, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmTilesEmulated = simd::tiled_gemm_of<Tiles>();

constinit const AttentionOf<float> kAttentionFloatEmulated =
    simd::vector_attention_of<Floats, Floats, 8, 2>();
constinit const AttentionOf<bfloat16> kAttentionWidenedEmulated =
    simd::vector_attention_of<Widened, Floats, 8, 2>();
constinit const AttentionOf<bfloat16> kAttentionPairsEmulated =
    simd::vector_attention_of<Pairs, Pairs, 8, 2>();
constinit const AttentionOf<bfloat16> kAttentionTilesEmulated =
    simd::attention_of<simd::TileProducts<Tiles>>();

void round_operands_emulated(std::size_t count, const float* x, bfloat16* to) {
  simd::round_operands<Pairs>(count, x, to);
}

void pair_dots_emulated(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
                        float* sums) {
  simd::pair_dots<Pairs>(count, a, b, sums);
}

void tile_dot_emulated(const TileConfig& config, const TileDot& dot) {
  run_tile_dot<emulated::Tiles>(config, dot);
}

}  // namespace tandem::kernels
