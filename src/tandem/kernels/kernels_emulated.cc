// The products of kernels_avx512.cc, kernels_avx512bf16.cc and kernels_amx.cc with plain C++ in the
// place of the instructions: the same templates, the same bits, any CPU.
#include "tandem/kernels/amx/gemm_tiles.h"
#include "tandem/kernels/amx/tiles_emulated.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/simd/emulated.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {

using emulated::Vec;
using Pairs = simd::PairUnit<Vec, emulated::Vdpbf16ps>;

constinit const PackedGemmOf<float> kPackedGemmFloatEmulated =
    simd::packed_gemm_of<simd::FloatUnit<Vec, float>, 8, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmWidenedEmulated =
    simd::packed_gemm_of<simd::FloatUnit<Vec, bfloat16>, 8, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmPairsEmulated =
    simd::packed_gemm_of<Pairs, 8, 3>();
constinit const PackedGemmOf<bfloat16> kPackedGemmTilesEmulated =
    simd::tiled_gemm_of<simd::PairUnit<Vec, emulated::Tiles>>();

void pair_dots_emulated(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
                        float* sums) {
  simd::pair_dots<Pairs>(count, a, b, sums);
}

void tile_dot_emulated(const TileConfig& config, const TileDot& dot) {
  run_tile_dot<emulated::Tiles>(config, dot);
}

}  // namespace tandem::kernels
