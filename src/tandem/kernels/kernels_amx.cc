// Products with tdpbf16ps (AMX-BF16: Sapphire Rapids and later); f32 products are those of
// kernels_avx512.cc.
#include "tandem/kernels/amx/gemm_tiles.h"
#include "tandem/kernels/amx/tiles_hardware.h"
#include "tandem/kernels/simd/avx512.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {

constinit const PackedGemmOf<bfloat16> kPackedGemmTiles =
    simd::tiled_gemm_of<simd::PairUnit<avx512::Vec, amx::Tiles>>();

double peak_amx(std::size_t iterations) { return simd::peak_tiles<amx::Tiles>(iterations); }

double l1_peak_amx(std::size_t iterations, const float* block) {
  return simd::l1_peak_tiles<amx::Tiles>(iterations, block);
}

void tile_dot_amx(const TileConfig& config, const TileDot& dot) {
  run_tile_dot<amx::Tiles>(config, dot);
}

}  // namespace tandem::kernels
