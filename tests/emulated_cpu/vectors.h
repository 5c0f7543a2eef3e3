// Plain C++ references for the AVX-512 vector (tandem/kernels/simd/avx512.h, as far as kernels need
// it) and for the arithmetic of the bf16 instructions. They compute the bits of the hardware on
// every CPU, slowly, so that kernels built on those instructions can be tested where the hardware
// is absent.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/simd/sixteen_lanes.h"

namespace tandem::kernels::emulated {

// --- arithmetic of VDPBF16PS and TDPBF16PS ---
//
// Intel, "64 and IA-32 Architectures Software Developer's Manual", volume 2, pages VDPBF16PS and
// TDPBF16PS: every step is an f32 fused multiply-add (the product is not rounded) that rounds to
// nearest even, takes denormal inputs as zeros ("DAZ") and writes zeros for denormal results
// ("FTZ"), whatever MXCSR has.
//
// The manual does not state whether a result is denormal before or after rounding. Here it is
// after, to 24 bits with unbounded exponent, as everywhere on x86. Zen 5's VDPBF16PS agrees
// (bf16_instructions_test.cc).

inline constexpr float kSmallestNormal = 0x1p-126f;

// Denormals become zeros of their sign. In integers, of which compilers make vectors.
inline float flushed(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>(bits & ((bits & 0x7F800000u) == 0 ? 0x80000000u : 0xFFFFFFFFu));
}

// a b + c with one rounding. The inputs are flushed already.
inline float fused_flushed(float a, float b, float c) {
  const float sum = std::fma(a, b, c);
  const float magnitude = std::abs(sum);
  if (magnitude > kSmallestNormal || std::isnan(sum)) [[likely]]
    return sum;
  if (magnitude < kSmallestNormal) return std::copysign(0.0f, sum);
  // Rounding to the spacing of denormals, 2^-149, may have carried up to the smallest normal a
  // value that rounds to 2^-126 - 2^-150 when the exponent is unbounded. The sum of f64 is exact
  // where this is in question.
  const double exact = static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c);
  return std::abs(exact) < 0x1p-126 - 0x1p-151 ? std::copysign(0.0f, sum) : sum;
}

// The same in steps that compilers make vectors of. Wrong where the result needs_care().
inline float fused_flushed_mostly(float a, float b, float c) { return flushed(std::fma(a, b, c)); }
// 1: `result` is a NaN or a smallest normal, else 0.
inline std::uint32_t needs_care(float result) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(result) & 0x7FFFFFFFu;
  return (magnitude == 0x00800000u ? 1u : 0u) | (magnitude > 0x7F800000u ? 1u : 0u);
}
template <std::size_t kCount>
bool any(const std::array<std::uint32_t, kCount>& flags) {
  std::uint32_t all = 0;
  for (const std::uint32_t flag : flags) all |= flag;
  return all != 0;
}

// a + b. Sums of normals are multiples of 2^-149: a denormal one is exact.
inline float add_flushed(float a, float b) { return flushed(a + b); }

// The halves of a pair as f32; a bf16 is denormal where its f32 is.
inline float low_half(std::uint32_t pair) { return flushed(std::bit_cast<float>(pair << 16)); }
inline float high_half(std::uint32_t pair) {
  return flushed(std::bit_cast<float>(pair & 0xFFFF0000u));
}

// One lane of VDPBF16PS: the high halves are multiplied and added first, then the low ones. A NaN
// is that of the first operand in the order of the manual's table "NaN Propagation Priorities",
// made quiet, or else the default NaN.
inline float dot_pair(std::uint32_t a, std::uint32_t b, float sum) {
  const float high = fused_flushed(high_half(a), high_half(b), flushed(sum));
  const float result = fused_flushed(low_half(a), low_half(b), high);
  if (!std::isnan(result)) [[likely]]
    return result;
  for (const float x : {low_half(a), low_half(b), high_half(a), high_half(b), sum}) {
    if (std::isnan(x)) return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) | 0x400000u);
  }
  return std::bit_cast<float>(0xFFC00000u);
}

// VCVTNEPS2BF16: to nearest even, denormals to zero.
inline bfloat16 rounded_operand(float x) { return to_bfloat16(flushed(x)); }

// One lane of VPDPBUSD and TDPBUSD: the bytes of a as u8 times those of b as s8, all four products
// and the sum added without saturation.
inline std::int32_t dot_of_bytes(std::uint32_t a, std::uint32_t b, std::int32_t sum) {
  auto total = static_cast<std::uint32_t>(sum);  // wraps
  for (int i = 0; i < 4; ++i) {
    const auto x = static_cast<std::int32_t>(a >> (8 * i) & 255u);
    const std::int32_t w = static_cast<std::int8_t>(b >> (8 * i) & 255u);
    total += static_cast<std::uint32_t>(x * w);
  }
  return static_cast<std::int32_t>(total);
}

// --- 16 lanes ---
//
// Nothing is inlined: kernels unroll their loops over vectors, and 16 lanes of plain C++ in each
// place would take the compiler a minute and hardly run faster.

struct Vec {
  static constexpr std::size_t kLanes = 16;
  using Mask = std::array<bool, kLanes>;
  struct Words {
    std::array<std::uint32_t, kLanes> w;
  };

  std::array<float, kLanes> v;

  [[gnu::noinline]] static Vec zero() { return {}; }
  [[gnu::noinline]] static Vec set1(float x) {
    Vec a;
    a.v.fill(x);
    return a;
  }
  template <class T>
  [[gnu::noinline]] static Vec load(const T* p) {
    return load_partial(p, kLanes);
  }
  template <class T>
  [[gnu::noinline]] static Vec load_partial(const T* p, std::size_t n) {
    Vec a = {};
    for (std::size_t i = 0; i < n; ++i) a.v[i] = to_float(p[i]);
    return a;
  }
  template <class T>
  [[gnu::noinline]] static void store(const Vec& a, T* p) {
    store_partial(a, p, kLanes);
  }
  template <class T>
  [[gnu::noinline]] static void store_partial(const Vec& a, T* p, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) p[i] = to_storage<T>(a.v[i]);
  }

  template <class T>
  [[gnu::noinline]] static void stream_two(const Vec& a, const Vec& b, T* p) {
    store(a, p);
    store(b, p + kLanes);
  }
  static void finish_streams() {}

  [[gnu::noinline]] friend Vec operator+(const Vec& a, const Vec& b) {
    Vec c;
    for (std::size_t i = 0; i < kLanes; ++i) c.v[i] = a.v[i] + b.v[i];
    return c;
  }
  [[gnu::noinline]] friend Vec operator-(const Vec& a, const Vec& b) {
    Vec c;
    for (std::size_t i = 0; i < kLanes; ++i) c.v[i] = a.v[i] - b.v[i];
    return c;
  }
  [[gnu::noinline]] friend Vec operator*(const Vec& a, const Vec& b) {
    Vec c;
    for (std::size_t i = 0; i < kLanes; ++i) c.v[i] = a.v[i] * b.v[i];
    return c;
  }
  [[gnu::noinline]] friend Vec operator/(const Vec& a, const Vec& b) {
    Vec c;
    for (std::size_t i = 0; i < kLanes; ++i) c.v[i] = a.v[i] / b.v[i];
    return c;
  }
  [[gnu::noinline]] static Vec fma(const Vec& a, const Vec& b, const Vec& c) {
    Vec sum;
    for (std::size_t i = 0; i < kLanes; ++i) sum.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
    return sum;
  }
  // c - a b
  [[gnu::noinline]] static Vec fnma(Vec a, const Vec& b, const Vec& c) {
    for (float& x : a.v) x = -x;
    return fma(a, b, c);
  }
  [[gnu::noinline]] static Vec sqrt(Vec a) {
    for (float& x : a.v) x = std::sqrt(x);
    return a;
  }
  [[gnu::noinline]] static Vec abs(Vec a) {
    for (float& x : a.v) x = std::abs(x);
    return a;
  }
  [[gnu::noinline]] static Vec copy_sign(Vec magnitude, const Vec& sign) {
    for (std::size_t i = 0; i < kLanes; ++i)
      magnitude.v[i] = std::copysign(magnitude.v[i], sign.v[i]);
    return magnitude;
  }
  // b where either is NaN.
  [[gnu::noinline]] static Vec min(Vec a, const Vec& b) {
    for (std::size_t i = 0; i < kLanes; ++i) a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
  }
  [[gnu::noinline]] static Vec max(Vec a, const Vec& b) {
    for (std::size_t i = 0; i < kLanes; ++i) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
  }
  [[gnu::noinline]] static Vec round(Vec a) {
    for (float& x : a.v) x = std::nearbyint(x);
    return a;
  }
  // a 2^n for integral n within the range of int.
  [[gnu::noinline]] static Vec scale_by_power(Vec a, const Vec& n) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      a.v[i] = std::isnan(n.v[i]) ? n.v[i] : std::ldexp(a.v[i], static_cast<int>(n.v[i]));
    }
    return a;
  }
  // The same where a and the result are normal numbers, or a is NaN.
  static Vec scale_normal(const Vec& a, const Vec& n) { return scale_by_power(a, n); }
  // a 2^floor(n), and n - floor(n), which is rounded down and 0 for an infinite n.
  [[gnu::noinline]] static Vec scale_by_floor(Vec a, Vec n) {
    for (float& x : n.v) x = std::max(-1000.0f, std::min(1000.0f, std::floor(x)));
    return scale_by_power(a, n);
  }
  [[gnu::noinline]] static Vec above_floor(Vec n) {
    for (float& x : n.v) {
      const double exact = static_cast<double>(x) - std::floor(static_cast<double>(x));
      const auto nearest = static_cast<float>(exact);
      const bool above = static_cast<double>(nearest) > exact || nearest == 1.0f;
      x = std::isinf(x) ? 0.0f : above ? std::nextafter(nearest, 0.0f) : nearest;
    }
    return n;
  }
  [[gnu::noinline]] static Mask less(const Vec& a, const Vec& b) {
    Mask m;
    for (std::size_t i = 0; i < kLanes; ++i) m[i] = a.v[i] < b.v[i];
    return m;
  }
  [[gnu::noinline]] static Mask less_equal(const Vec& a, const Vec& b) {
    Mask m;
    for (std::size_t i = 0; i < kLanes; ++i) m[i] = a.v[i] <= b.v[i];
    return m;
  }
  [[gnu::noinline]] static Mask lanes_below(std::size_t n) {
    Mask m;
    for (std::size_t i = 0; i < kLanes; ++i) m[i] = i < n;
    return m;
  }
  [[gnu::noinline]] static Vec select(const Mask& m, const Vec& yes, Vec no) {
    for (std::size_t i = 0; i < kLanes; ++i) no.v[i] = m[i] ? yes.v[i] : no.v[i];
    return no;
  }

  // Across lanes: halves are joined until one lane is left.
  template <class Lanes, class Join>
  [[gnu::noinline]] static auto joined(Lanes lanes, Join join) {
    for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) lanes[i] = join(lanes[i], lanes[i + half]);
    }
    return lanes[0];
  }
  [[gnu::noinline]] static float sum(const Vec& a) {
    return joined(a.v, [](float x, float y) { return x + y; });
  }
  [[gnu::noinline]] static float largest(const Vec& a) {
    return joined(a.v, [](float x, float y) { return x > y ? x : y; });
  }
  // The squares of the lanes in f64, the lower half of the lanes first.
  using Doubles = std::array<double, kLanes / 2>;
  [[gnu::noinline]] static Doubles zero_doubles() { return {}; }
  [[gnu::noinline]] static Doubles add_squares(const Vec& a, Doubles total) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const auto x = static_cast<double>(a.v[i]);
      double& sum = total[i % total.size()];
      sum = std::fma(x, x, sum);
    }
    return total;
  }
  [[gnu::noinline]] static double sum(const Doubles& a) {
    return joined(a, [](double x, double y) { return x + y; });
  }

  // 32-bit integers, for the dropout generator and tests of bits.
  [[gnu::noinline]] static Words words(std::uint32_t x) {
    Words a;
    a.w.fill(x);
    return a;
  }
  [[gnu::noinline]] static Words word_order() {
    Words a;
    for (std::size_t i = 0; i < kLanes; ++i) a.w[i] = static_cast<std::uint32_t>(i);
    return a;
  }
  [[gnu::noinline]] static Words add(Words a, const Words& b) {
    for (std::size_t i = 0; i < kLanes; ++i) a.w[i] += b.w[i];
    return a;
  }
  [[gnu::noinline]] static Words multiply(Words a, const Words& b) {
    for (std::size_t i = 0; i < kLanes; ++i) a.w[i] *= b.w[i];
    return a;
  }
  [[gnu::noinline]] static Words exclusive_or(Words a, const Words& b) {
    for (std::size_t i = 0; i < kLanes; ++i) a.w[i] ^= b.w[i];
    return a;
  }
  [[gnu::noinline]] static Words inclusive_or(Words a, const Words& b) {
    for (std::size_t i = 0; i < kLanes; ++i) a.w[i] |= b.w[i];
    return a;
  }
  [[gnu::noinline]] static bool all_zero(const Words& a) {
    return a.w == std::array<std::uint32_t, kLanes>{};
  }
  template <int kBits>
  [[gnu::noinline]] static Words shift_right(Words a) {
    for (std::uint32_t& w : a.w) w >>= kBits;
    return a;
  }
  // Which of 2 x 16 elements are kept.
  using Kept = std::array<bool, 2 * kLanes>;
  [[gnu::noinline]] static Kept kept(const Words& word, std::uint32_t threshold) {
    Kept kept;
    for (std::size_t i = 0; i < kept.size(); ++i)
      kept[i] = ((word.w[i / 2] >> (i % 2 == 0 ? 0 : 16)) & 0xFFFFu) >= threshold;
    return kept;
  }
  [[gnu::noinline]] static Vec keep_first(const Kept& kept, Vec a) {
    for (std::size_t i = 0; i < kLanes; ++i) a.v[i] = kept[i] ? a.v[i] : 0.0f;
    return a;
  }
  [[gnu::noinline]] static Vec keep_second(const Kept& kept, Vec a) {
    for (std::size_t i = 0; i < kLanes; ++i) a.v[i] = kept[kLanes + i] ? a.v[i] : 0.0f;
    return a;
  }

  [[gnu::noinline]] static Words load_words(const void* p) {
    Words a;
    std::memcpy(&a.w, p, sizeof(a.w));
    return a;
  }
  [[gnu::noinline]] static void store_words(const Words& a, void* p) {
    std::memcpy(p, &a.w, sizeof(a.w));
  }
  [[gnu::noinline]] static void store_word_halves(const Words& a, void* low, void* high) {
    std::memcpy(low, a.w.data(), sizeof(a.w) / 2);
    std::memcpy(high, a.w.data() + kLanes / 2, sizeof(a.w) / 2);
  }
  [[gnu::noinline]] static Words broadcast(const void* unit) {
    Words a;
    std::uint32_t bits = 0;
    std::memcpy(&bits, unit, sizeof(bits));
    a.w.fill(bits);
    return a;
  }
  [[gnu::noinline]] static Words low_half(Words pairs) {
    for (std::uint32_t& word : pairs.w) word <<= 16;
    return pairs;
  }
  [[gnu::noinline]] static Words high_half(Words pairs) {
    for (std::uint32_t& word : pairs.w) word &= 0xFFFF0000u;
    return pairs;
  }
  [[gnu::noinline]] static Words as_words(const Vec& a) { return std::bit_cast<Words>(a.v); }
  [[gnu::noinline]] static Vec from_words(const Words& a) {
    return {std::bit_cast<std::array<float, kLanes>>(a.w)};
  }

  // Bits, not floats: rows of pairs come this way, too.
  using Eight = std::array<std::uint32_t, 8>;
  [[gnu::noinline]] static Eight load_8(const float* p) {
    Eight a;
    std::memcpy(&a, p, sizeof(a));
    return a;
  }
  [[gnu::noinline]] static Eight load_8(const bfloat16* p) {
    Eight a;
    for (std::size_t i = 0; i < 8; ++i) a[i] = static_cast<std::uint32_t>(p[i].bits) << 16;
    return a;
  }
  [[gnu::noinline]] static void transpose_16(const std::uint32_t* from, std::uint32_t* to,
                                             std::size_t ld_to) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      for (std::size_t j = 0; j < kLanes; ++j) to[j * ld_to + i] = from[i * kLanes + j];
    }
  }
  [[gnu::noinline]] static void store_transposed(const Eight (&rows)[8], std::uint32_t* to,
                                                 std::size_t ld) {
    for (std::size_t i = 0; i < 8; ++i) {
      for (std::size_t j = 0; j < 8; ++j) to[i * ld + j] = rows[j][i];
    }
  }
  [[gnu::noinline]] static Words interleave(const bfloat16* even, const bfloat16* odd,
                                            std::size_t n) {
    Words a = {};
    for (std::size_t i = 0; i < n; ++i) {
      a.w[i] = even[i].bits | (odd == nullptr ? 0u : static_cast<std::uint32_t>(odd[i].bits) << 16);
    }
    return a;
  }
  [[gnu::noinline]] static void interleave_two(const bfloat16* even, const bfloat16* odd,
                                               Words& first, Words& second) {
    first = interleave(even, odd, kLanes);
    second = interleave(even + kLanes, odd == nullptr ? nullptr : odd + kLanes, kLanes);
  }
};

// 32 elements rounded for a product.
struct Rounded {
  std::array<bfloat16, 2 * Vec::kLanes> v;

  [[gnu::noinline]] Rounded zero_unless(const Vec::Kept& kept) const {
    Rounded x = *this;
    for (std::size_t i = 0; i < v.size(); ++i) x.v[i] = kept[i] ? v[i] : bfloat16{};
    return x;
  }
  Rounded zero_unless(simd::AllKept) const { return *this; }
  [[gnu::noinline]] static void store(const Rounded& x, bfloat16* p) {
    store_partial(x, p, x.v.size());
  }
  [[gnu::noinline]] static void store_partial(const Rounded& x, bfloat16* p, std::size_t n) {
    std::copy_n(x.v.begin(), n, p);
  }
};

struct Vdpbf16ps {
  [[gnu::noinline]] static Rounded rounded(const simd::Twice<Vec>& x) {
    Rounded rounded;
    for (std::size_t i = 0; i < Vec::kLanes; ++i) {
      rounded.v[i] = rounded_operand(x.low.v[i]);
      rounded.v[Vec::kLanes + i] = rounded_operand(x.high.v[i]);
    }
    return rounded;
  }
  [[gnu::noinline]] static Vec dot(const Vec::Words& a, const Vec::Words& b, const Vec& sum) {
    Vec result;
    std::array<std::uint32_t, Vec::kLanes> care;
    for (std::size_t i = 0; i < Vec::kLanes; ++i) {
      const float high =
          fused_flushed_mostly(high_half(a.w[i]), high_half(b.w[i]), flushed(sum.v[i]));
      result.v[i] = fused_flushed_mostly(low_half(a.w[i]), low_half(b.w[i]), high);
      care[i] = needs_care(high) | needs_care(result.v[i]);
    }
    if (any(care)) [[unlikely]] {
      for (std::size_t i = 0; i < Vec::kLanes; ++i)
        result.v[i] = dot_pair(a.w[i], b.w[i], sum.v[i]);
    }
    return result;
  }
};

}  // namespace tandem::kernels::emulated
