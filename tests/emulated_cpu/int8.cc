// The products of int8_avx512vnni.cc with plain C++ instead of vpdpbusd: the same template, the
// same bits, any CPU.
#include <array>
#include <cstring>

#include "emulated_cpu/emulated_kernels.h"
#include "emulated_cpu/vectors.h"
#include "tandem/kernels/int8_simd.h"

namespace tandem::kernels::emulated {
namespace {

// One lane of VPDPBUSD (Intel, "64 and IA-32 Architectures Software Developer's Manual", volume 2):
// the bytes of a as u8 times those of b as s8, all four products and the sum added without
// saturation.
std::int32_t dot_bytes(std::uint32_t a, std::uint32_t b, std::int32_t sum) {
  auto total = static_cast<std::uint32_t>(sum);  // wraps
  for (int i = 0; i < 4; ++i) {
    const auto x = static_cast<std::int32_t>(a >> (8 * i) & 255u);
    const std::int32_t w = static_cast<std::int8_t>(b >> (8 * i) & 255u);
    total += static_cast<std::uint32_t>(x * w);
  }
  return static_cast<std::int32_t>(total);
}

struct Int8Unit {
  using V = Vec;
  using Element = std::uint8_t;
  using X = std::uint32_t;
  using Sums = std::array<std::int32_t, kInt8Panel>;
  using Weights = Vec::Words;

  static Sums zero() { return {}; }
  static Weights load(const std::int8_t* p) { return Vec::load_words(p); }
  static X broadcast(const std::byte* four) {
    X x = 0;
    std::memcpy(&x, four, sizeof(x));
    return x;
  }
  static Sums add_products(X x, const Weights& weights, Sums sums) {
    for (std::size_t i = 0; i < kInt8Panel; ++i) sums[i] = dot_bytes(x, weights.w[i], sums[i]);
    return sums;
  }
  static void to_float(const Sums& sums, std::int32_t zero_point, const std::int32_t* row_sums,
                       Vec (&to)[1]) {
    for (std::size_t i = 0; i < kInt8Panel; ++i) {
      to[0].v[i] = static_cast<float>(sums[i] - zero_point * row_sums[i]);
    }
  }
};

}  // namespace

const Int8Kernels& int8_avx512vnni() {
  static const Int8Kernels kernels = [] {
    Int8Kernels k = kInt8Reference;  // which quantizes to the same bytes
    k.row_block = 8;
    k.f32.multiply = simd::int8_multiply<Int8Unit, 8, 3, float>;
    k.bf16.multiply = simd::int8_multiply<Int8Unit, 8, 3, bfloat16>;
    return k;
  }();
  return kernels;
}

void byte_dots(std::size_t count, const std::uint32_t* a, const std::uint32_t* b,
               std::int32_t* sums) {
  for (std::size_t i = 0; i < count; ++i) sums[i] = dot_bytes(a[i], b[i], sums[i]);
}

}  // namespace tandem::kernels::emulated
