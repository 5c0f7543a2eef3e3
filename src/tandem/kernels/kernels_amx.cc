// Products with tdpbf16ps (AMX-BF16: Sapphire Rapids and later); f32 products are those of
// kernels_avx512.cc. Attention also needs AVX512_BF16, to round.
#include "tandem/kernels/amx/tiles_hardware.h"
#include "tandem/kernels/attention_tiles.h"
#include "tandem/kernels/gemm_tile_rows.h"
#include "tandem/kernels/simd/avx512bf16.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {
namespace amx {

struct RoundingTiles : Tiles {
  using Tiles::Tiles;
  [[gnu::always_inline]] static inline avx512bf16::Rounded rounded(simd::Twice<avx512::Vec> x) {
    return avx512bf16::Vdpbf16ps::rounded(x);
  }
};

using Unit = simd::PairUnit<avx512::Vec, RoundingTiles>;

}  // namespace amx

constinit const RowsGemm kRowsGemmTiles = simd::tiled_gemm_of<amx::Unit>();
constinit const AttentionOf<bfloat16> kAttentionTiles =
    simd::attention_of<simd::TileProducts<amx::Unit>>();

double peak_amx(std::size_t iterations) { return simd::peak_tiles<amx::Tiles>(iterations); }

double l1_peak_amx(std::size_t iterations, const float* block) {
  return simd::l1_peak_tiles<amx::Tiles>(iterations, block);
}

void tile_dot_amx(const TileConfig& config, const TileDot& dot) {
  run_tile_dot<amx::Tiles>(config, dot);
}

}  // namespace tandem::kernels
