// Products of int8.h with tdpbusd (AMX-INT8: Sapphire Rapids and later).
#include "tandem/kernels/amx/tiles_hardware.h"
#include "tandem/kernels/int8_tiles.h"
#include "tandem/kernels/simd/avx512vnni.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {
namespace {

using Unit = avx512vnni::Int8Unit;

template <class T>
constexpr Int8Kernels::Of<T> kernels_of() {
  return {.min_max = simd::int8_min_max<Unit::V, T>,
          .quantize = simd::int8_quantize<Unit, T>,
          .multiply = simd::int8_multiply_tiles<amx::Tiles, Unit, T>};
}

}  // namespace

constinit const Int8Kernels kInt8Amx = {.element_bytes = sizeof(Unit::Element),
                                        .row_block = 2 * kTileRows,
                                        .chunk_bytes = simd::kInt8TilesChunk,
                                        .f32 = kernels_of<float>(),
                                        .bf16 = kernels_of<bfloat16>(),
                                        .peak = simd::int8_peak_tiles<amx::Tiles>};

}  // namespace tandem::kernels
