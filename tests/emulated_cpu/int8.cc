// The products of int8_avx512vnni.cc and int8_amxint8.cc with plain C++ instead of vpdpbusd and
// tdpbusd: the same templates, the same bits, any CPU.
#include <array>
#include <cstring>

#include "emulated_cpu/emulated_kernels.h"
#include "emulated_cpu/tiles.h"
#include "emulated_cpu/vectors.h"
#include "tandem/kernels/int8_simd.h"
#include "tandem/kernels/int8_tiles.h"

namespace tandem::kernels::emulated {
namespace {

struct Int8Unit {
  using V = Vec;
  using Element = std::uint8_t;
  using X = std::uint32_t;
  using Sums = std::array<std::int32_t, kInt8Panel>;
  using Weights = Vec::Words;

  static Sums zero() { return {}; }
  static Sums load_sums(const std::int32_t* p) {
    Sums sums;
    std::memcpy(sums.data(), p, sizeof(sums));
    return sums;
  }
  static Weights load(const std::int8_t* p) { return Vec::load_words(p); }
  static X broadcast(const std::byte* four) {
    X x = 0;
    std::memcpy(&x, four, sizeof(x));
    return x;
  }
  static Sums add_products(X x, const Weights& weights, Sums sums) {
    for (std::size_t i = 0; i < kInt8Panel; ++i) sums[i] = dot_of_bytes(x, weights.w[i], sums[i]);
    return sums;
  }
  static void to_float(const Sums& sums, std::int32_t zero_point, const std::int32_t* row_sums,
                       Vec (&to)[1]) {
    for (std::size_t i = 0; i < kInt8Panel; ++i) {
      to[0].v[i] = static_cast<float>(sums[i] - zero_point * row_sums[i]);
    }
  }
};

// The reference quantizes to the same bytes.
Int8Kernels kernels_of(std::size_t row_block, void (*f32)(const Int8Product<float>&),
                       void (*bf16)(const Int8Product<bfloat16>&)) {
  Int8Kernels kernels = kInt8Reference;
  kernels.row_block = row_block;
  kernels.f32.multiply = f32;
  kernels.bf16.multiply = bf16;
  return kernels;
}

}  // namespace

const Int8Kernels& int8_avx512vnni() {
  static const Int8Kernels kernels = kernels_of(8, simd::int8_multiply<Int8Unit, 8, 3, float>,
                                                simd::int8_multiply<Int8Unit, 8, 3, bfloat16>);
  return kernels;
}

const Int8Kernels& int8_amx() {
  static const Int8Kernels kernels = [] {
    Int8Kernels k = kernels_of(2 * kTileRows, simd::int8_multiply_tiles<Tiles, Int8Unit, float>,
                               simd::int8_multiply_tiles<Tiles, Int8Unit, bfloat16>);
    k.chunk_bytes = simd::kInt8TilesChunk;
    return k;
  }();
  return kernels;
}

void byte_dots(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
               std::int32_t* sums) {
  for (std::size_t i = 0; i < count; ++i) sums[i] = dot_of_bytes(a[i], b[i], sums[i]);
}

}  // namespace tandem::kernels::emulated
