// The plain C++ emulations of VDPBF16PS, VCVTNEPS2BF16 and TDPBF16PS: by hand against the published
// definition on every CPU, and bit for bit against the instruction itself where there is one.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "emulated_cpu/tiles.h"
#include "emulated_cpu/vectors.h"
#include "tandem/kernels/kernel_test_support.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels::testing {
namespace {

constexpr float kTiny = 0x1p-126f;  // the smallest normal
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
float of_bits(std::uint32_t x) { return std::bit_cast<float>(x); }

// The low half comes first in the reduction.
std::uint32_t pair(float low, float high) {
  return to_bfloat16(low).bits | static_cast<std::uint32_t>(to_bfloat16(high).bits) << 16;
}

// Equal bits; any NaN equals any other.
bool same(float a, float b) { return bits(a) == bits(b) || (std::isnan(a) && std::isnan(b)); }

// --- by hand ---

TEST(EmulatedArithmetic, FlushesDenormalsToZerosOfTheirSign) {
  EXPECT_EQ(bits(emulated::flushed(kTiny)), bits(kTiny));
  EXPECT_EQ(bits(emulated::flushed(kTiny / 2)), bits(0.0f));
  EXPECT_EQ(bits(emulated::flushed(-kTiny / 2)), bits(-0.0f));
  EXPECT_TRUE(std::isnan(emulated::flushed(of_bits(0x7FC00000))));
  EXPECT_EQ(bits(emulated::fused_flushed(kTiny, 0.5f, 0.0f)), bits(0.0f));
  EXPECT_EQ(bits(emulated::fused_flushed(-kTiny, 0.5f, 0.0f)), bits(-0.0f));
  EXPECT_EQ(bits(emulated::fused_flushed(kTiny, 0.5f, -kTiny)), bits(-0.0f));
  EXPECT_EQ(bits(emulated::fused_flushed(1.0f, 1.0f, -1.0f)), bits(0.0f));
}

// The product is not rounded and may be out of range by itself.
TEST(EmulatedArithmetic, IsFused) {
  const float huge = 0x1p127f;
  EXPECT_EQ(emulated::fused_flushed(huge, 2.0f, -huge), huge);
  EXPECT_EQ(emulated::fused_flushed(huge, 2.0f, huge), kInfinity);
  // 2^-126 + 2^-149 and a product of 2^-150, half of the last place: to even.
  EXPECT_EQ(bits(emulated::fused_flushed(0x1p-75f, 0x1p-75f, of_bits(0x00800001))), 0x00800002u);
  EXPECT_EQ(bits(emulated::fused_flushed(0x1p-75f, 0x1p-76f, of_bits(0x00800001))), 0x00800001u);
}

// Denormal is what has a smaller exponent after rounding to 24 bits.
TEST(EmulatedArithmetic, DetectsDenormalsAfterRounding) {
  // 2^-126 - 2^-150: 24 bits of a smaller exponent. Gradual underflow would round it to 2^-126.
  EXPECT_EQ(bits(emulated::fused_flushed(-0x1p-75f, 0x1p-75f, kTiny)), bits(0.0f));
  EXPECT_EQ(bits(emulated::fused_flushed(0x1p-75f, 0x1p-75f, -kTiny)), bits(-0.0f));
  // 2^-126 - 2^-151 is a tie between that and 2^-126, which is even.
  EXPECT_EQ(bits(emulated::fused_flushed(-0x1p-75f, 0x1p-76f, kTiny)), bits(kTiny));
  EXPECT_EQ(bits(emulated::fused_flushed(-0x1p-75f, 0x1.02p-76f, kTiny)), bits(0.0f));
}

TEST(EmulatedVdpbf16ps, AddsTheHighHalvesFirst) {
  const float big = 0x1p30f;
  EXPECT_EQ(emulated::dot_pair(pair(-big, 1), pair(1, 1), big), 0.0f);  // big + 1 is big
  EXPECT_EQ(emulated::dot_pair(pair(1, -big), pair(1, 1), big), 1.0f);
}

TEST(EmulatedVdpbf16ps, PropagatesNanInTheManualsOrder) {
  const std::uint32_t one = 0x3F803F80u;
  EXPECT_EQ(bits(emulated::dot_pair(0x7FC17F82u, one, of_bits(0x7FC00003))), 0x7FC20000u);
  EXPECT_EQ(bits(emulated::dot_pair(0x7FC13F80u, one, of_bits(0x7FC00003))), 0x7FC10000u);
  EXPECT_EQ(bits(emulated::dot_pair(one, 0x7FC17F82u, of_bits(0x7FC00003))), 0x7FC20000u);
  EXPECT_EQ(bits(emulated::dot_pair(one, one, of_bits(0xFF800003))), 0xFFC00003u);
  EXPECT_EQ(bits(emulated::dot_pair(pair(kInfinity, 0), pair(0, 0), 1.0f)), 0xFFC00000u);
}

// The effect of one TDPBF16PS on one element of the result, after the manual's text.
float tile_element(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b,
                   float sum) {
  float even = 0;
  float odd = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    even = emulated::fused_flushed(emulated::low_half(a[k]), emulated::low_half(b[k]), even);
    odd = emulated::fused_flushed(emulated::high_half(a[k]), emulated::high_half(b[k]), odd);
  }
  return emulated::flushed(emulated::flushed(sum) + emulated::flushed(even + odd));
}

TileConfig config_of(std::size_t rows, std::size_t columns, std::size_t pairs) {
  TileConfig config;
  const auto set = [&config](int tile, std::size_t tile_rows, std::size_t words) {
    config.rows[tile] = static_cast<std::uint8_t>(tile_rows);
    config.row_bytes[tile] = static_cast<std::uint16_t>(4 * words);
  };
  set(0, rows, columns);
  set(1, rows, pairs);
  set(2, pairs, columns);
  return config;
}

using RunTileDot = void (*)(const TileConfig&, const TileDot&);

// One dot product of tiles of the given size, stored in the middle of larger matrices.
std::vector<float> tile_product(RunTileDot run, std::size_t rows, std::size_t columns,
                                std::size_t pairs, const std::vector<std::uint32_t>& a,
                                const std::vector<std::uint32_t>& b, std::vector<float> sums) {
  run(config_of(rows, columns, pairs), {.a = a.data(),
                                        .a_stride_bytes = 4 * 20,
                                        .b = b.data(),
                                        .b_stride_bytes = 4 * 24,
                                        .sum = sums.data(),
                                        .sum_stride_bytes = 4 * 28});
  return sums;
}

float one_element(RunTileDot run, const std::vector<std::uint32_t>& a,
                  const std::vector<std::uint32_t>& b, float sum) {
  std::vector<std::uint32_t> b_rows(16 * 24);
  for (std::size_t k = 0; k < b.size(); ++k) b_rows[k * 24] = b[k];
  std::vector<float> sums(16 * 28);
  sums[0] = sum;
  std::vector<std::uint32_t> a_rows = a;
  a_rows.resize(16 * 20);
  return tile_product(run, 1, 1, a.size(), a_rows, b_rows, sums)[0];
}

TEST(EmulatedTdpbf16ps, SumsBothHalvesApartAndAddsTheResultLast) {
  const float big = 0x1p30f;
  const auto element = [](std::vector<std::uint32_t> a, std::vector<std::uint32_t> b, float sum) {
    return one_element(emulated::tile_dot, a, b, sum);
  };
  const std::uint32_t ones = pair(1, 1);
  EXPECT_EQ(element({pair(2, 3)}, {pair(5, 7)}, 11), 42.0f);
  // -big + 1 is -big: one chain that began with the sum would give 1.
  EXPECT_EQ(element({pair(-big, 1)}, {ones}, big), 0.0f);
  // The even chain is exactly 1, then 1 + 0; across the halves it would lose the 1.
  EXPECT_EQ(element({pair(big, 0), pair(-big, 0), pair(1, 0)}, {ones, ones, ones}, 0), 1.0f);
  EXPECT_EQ(element({pair(big, 1), pair(-big, 1)}, {ones, ones}, 0), 2.0f);
  EXPECT_EQ(bits(element({pair(kTiny, 0)}, {pair(0.5f, 0)}, -kTiny / 2)), bits(0.0f));
}

using EmulatedTilesDeathTest = ::testing::Test;

TEST(EmulatedTilesDeathTest, TilesMustFitOneAnother) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  TileConfig config = config_of(4, 5, 6);
  config.rows[2] = 7;
  const std::vector<std::uint32_t> a(16 * 20);
  std::vector<float> sums(16 * 28);
  EXPECT_DEATH(emulated::tile_dot(config, {.a = a.data(),
                                           .a_stride_bytes = 4,
                                           .b = a.data(),
                                           .b_stride_bytes = 4,
                                           .sum = sums.data(),
                                           .sum_stride_bytes = 4}),
               "times 7 rows of 20 bytes");
  config.rows[2] = 17;
  EXPECT_DEATH(emulated::Tiles{config}, "tile 2: 17 rows");
}

// --- random and special values ---

// A generator of 32-bit words of several kinds.
class Words {
 public:
  explicit Words(std::uint64_t seed) : state_(seed) {}
  std::uint32_t any() {
    state_ = splitmix64(state_);
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  std::uint32_t below(std::uint32_t n) { return any() % n; }
  std::uint32_t sign_and_mantissa() { return any() & 0x807FFFFFu; }

 private:
  std::uint64_t state_;
};

enum Kind {
  kUniform,       // exponents near that of 1
  kAnyBits,       // NaN and infinities among them
  kWideExponent,  // products from far below the smallest to above the largest float
  kNearDenormal,  // sums and products around the smallest normal
  kSpecial,       // signed zeros, denormals, infinities, NaN, largest and smallest normals
  kKinds
};

std::uint32_t upper_half(Words& words, Kind kind) {
  static constexpr std::uint32_t kHalves[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080,
                                              0x8080, 0x7F80, 0xFF80, 0x3F80, 0xBF80, 0x7F7F,
                                              0xFF7F, 0x7FC0, 0x7F81, 0xFFC1};
  switch (kind) {
    case kUniform:
      return (words.sign_and_mantissa() | (0x7Eu + words.below(2)) << 23) >> 16;
    case kWideExponent:
      return (words.sign_and_mantissa() | words.below(160) << 23) >> 16;
    case kNearDenormal: {
      // 2^-75 times a power of two nearby, often without further bits.
      const std::uint32_t mantissa = words.below(2) == 0 ? 0 : words.any() & 0x7F0000u;
      return ((words.any() & 0x80000000u) | mantissa | (51 + words.below(4)) << 23) >> 16;
    }
    case kSpecial:
      return kHalves[words.below(std::size(kHalves))];
    default:
      return words.any() >> 16;
  }
}

std::uint32_t random_pair(Words& words, Kind kind) {
  const std::uint32_t low = upper_half(words, kind);
  const std::uint32_t high = upper_half(words, kind);
  // Half of the pairs near denormals have one product only, so that the other does not hide it.
  return kind == kNearDenormal && words.below(2) == 0 ? low : high << 16 | low;
}

float random_sum(Words& words, Kind kind) {
  static constexpr std::uint32_t kSums[] = {
      0,          0x80000000, 1,          0x80000001, 0x7F800000, 0xFF800000, 0x3F800000,
      0xBF800000, 0x7FC00000, 0x7F800001, 0xFFC12345, 0x00800000, 0x80800000, 0x7F7FFFFF};
  switch (kind) {
    case kUniform:
      return of_bits(words.sign_and_mantissa() | 0x3F000000u);
    case kNearDenormal:
      return of_bits((words.any() & 0x80000000u) | 0x00800000u |
                     (words.below(2) == 0 ? 0 : words.any() & 0x00800007u));
    case kSpecial:
      return of_bits(kSums[words.below(std::size(kSums))]);
    default:
      return of_bits(words.any());
  }
}

struct PairOperands {
  static constexpr std::size_t kCount = 200'000;

  PairOperands(Words& words, Kind kind) : a(kCount), b(kCount), sums(kCount) {
    for (std::size_t i = 0; i < kCount; ++i) {
      a[i] = random_pair(words, kind);
      b[i] = random_pair(words, kind);
      sums[i] = random_sum(words, kind);
      // Cancellation: the sum is the high product, negated.
      if (kind == kUniform && i % 4 == 0)
        sums[i] = -emulated::high_half(a[i]) * emulated::high_half(b[i]);
    }
  }
  // NaN payloads are compared, too.
  void expect_equal(const std::vector<float>& found, const std::vector<float>& expected) const {
    std::size_t different = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      if (bits(found[i]) == bits(expected[i])) continue;
      if (different++ == 0) {
        ADD_FAILURE() << fmt::format("{:08x} · {:08x} + {:08x} is {:08x}, the emulation has {:08x}",
                                     a[i], b[i], bits(sums[i]), bits(expected[i]), bits(found[i]));
      }
    }
    EXPECT_EQ(different, 0u);
  }

  std::vector<std::uint32_t> a, b;
  std::vector<float> sums;
};

// Vectors take another way than single pairs unless a lane needs care.
TEST(EmulatedVdpbf16ps, VectorsHaveTheBitsOfPairs) {
  Words words(3);
  for (int kind = 0; kind < kKinds; ++kind) {
    SCOPED_TRACE(kind);
    const PairOperands in(words, static_cast<Kind>(kind));
    std::vector<float> vectors = in.sums, pairs = in.sums;
    emulated::pair_dots(in.kCount, in.a.data(), in.b.data(), vectors.data());
    for (std::size_t i = 0; i < in.kCount; ++i)
      pairs[i] = emulated::dot_pair(in.a[i], in.b[i], pairs[i]);
    in.expect_equal(vectors, pairs);
  }
}

TEST(EmulatedVdpbf16ps, EqualsTheHardware) {
#if defined(__x86_64__)
  if (!CpuFeatures::of_processor().avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512_BF16";
  Words words(1);
  for (int kind = 0; kind < kKinds; ++kind) {
    SCOPED_TRACE(kind);
    const PairOperands in(words, static_cast<Kind>(kind));
    std::vector<float> hardware = in.sums, emulation = in.sums;
    pair_dots_avx512bf16(in.kCount, in.a.data(), in.b.data(), hardware.data());
    emulated::pair_dots(in.kCount, in.a.data(), in.b.data(), emulation.data());
    in.expect_equal(emulation, hardware);
  }
#else
  GTEST_SKIP() << "not an x86 CPU";
#endif
}

TEST(EmulatedVcvtneps2bf16, RoundsToEvenAndFlushesDenormals) {
  const auto rounded = [](std::uint32_t x) { return emulated::rounded_operand(of_bits(x)).bits; };
  EXPECT_EQ(rounded(0x3F808000), 0x3F80);  // ties to even
  EXPECT_EQ(rounded(0x3F818000), 0x3F82);
  EXPECT_EQ(rounded(0x3F808001), 0x3F81);
  EXPECT_EQ(rounded(0x7F7FFFFF), 0x7F80);
  EXPECT_EQ(rounded(0x007FFFFF), 0x0000);
  EXPECT_EQ(rounded(0x80400000), 0x8000);
  EXPECT_EQ(rounded(0x7F800001), 0x7FC0);
}

TEST(EmulatedVcvtneps2bf16, EqualsTheHardware) {
#if defined(__x86_64__)
  if (!CpuFeatures::of_processor().avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512_BF16";
  constexpr std::size_t kCount = 100'000;
  Words words(4);
  for (int kind = 0; kind < kKinds; ++kind) {
    std::vector<float> x(kCount);
    for (float& value : x) value = random_sum(words, static_cast<Kind>(kind));
    std::vector<bfloat16> hardware(kCount);
    std::vector<bfloat16> reference_run(kCount);
    round_operands_avx512bf16(kCount, x.data(), hardware.data());
    emulated::round_operands(kCount, x.data(), reference_run.data());
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(hardware[i].bits, reference_run[i].bits)
          << fmt::format("kind {}: {:08x}", kind, bits(x[i]));
    }
  }
#else
  GTEST_SKIP() << "not an x86 CPU";
#endif
}

// The exponential of bf16's softmax: NaN, then what becomes zero, then a sweep.
std::vector<float> exponents() {
  std::vector<float> x = {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity(), -1000.0f, -151.0f};
  x.push_back(-1e-9f);
  for (float y = -126.0f; y < 10.0f; y += 0x1p-11f) x.push_back(y);
  return x;
}

TEST(ExponentialOfOperands, IsWithinItsBound) {
  const std::vector<float> x = exponents();
  std::vector<float> y(x.size());
  emulated::exp2_of_operands(x.size(), x.data(), y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  for (int i = 1; i < 4; ++i) EXPECT_EQ(y[static_cast<std::size_t>(i)], 0.0f);
  double worst = 0;
  for (std::size_t i = 4; i < x.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) / exact - 1));
  }
  EXPECT_LE(worst, 3.5e-6);
  for (std::size_t i = 5; i < x.size(); ++i) {
    if (x[i] != std::floor(x[i])) continue;
    EXPECT_EQ(y[i], std::exp2(x[i])) << x[i];
  }
}

TEST(ExponentialOfOperands, HasTheHardwaresBits) {
#if defined(__x86_64__)
  if (!CpuFeatures::of_processor().avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512_BF16";
  const std::vector<float> x = exponents();
  std::vector<float> hardware(x.size());
  std::vector<float> reference_run(x.size());
  exp2_of_operands_avx512bf16(x.size(), x.data(), hardware.data());
  emulated::exp2_of_operands(x.size(), x.data(), reference_run.data());
  EXPECT_TRUE(std::isnan(hardware[0]));
  for (std::size_t i = 1; i < x.size(); ++i)
    ASSERT_EQ(bits(hardware[i]), bits(reference_run[i])) << x[i];
#else
  GTEST_SKIP() << "not an x86 CPU";
#endif
}

struct TileOperands {
  TileOperands(Words& words, Kind kind) : a(16 * 20), b(16 * 24), sums(16 * 28) {
    for (auto& x : a) x = random_pair(words, kind);
    for (auto& x : b) x = random_pair(words, kind);
    for (auto& x : sums) x = random_sum(words, kind);
  }
  std::vector<std::uint32_t> a, b;
  std::vector<float> sums;
};

struct TileSize {
  std::size_t rows, columns, pairs;
};
constexpr TileSize kTileSizes[] = {{16, 16, 16}, {1, 1, 1},   {16, 1, 16}, {1, 16, 3},
                                   {5, 7, 11},   {16, 16, 1}, {9, 16, 15}};

// Tiles of every size against the formula above, element by element; what lies around the tile in
// memory stays as it was.
TEST(EmulatedTdpbf16ps, FollowsTheDefinitionForEverySize) {
  Words words(2);
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const TileSize& s : kTileSizes) {
      const TileOperands in(words, static_cast<Kind>(kind));
      const std::vector<float> got =
          tile_product(emulated::tile_dot, s.rows, s.columns, s.pairs, in.a, in.b, in.sums);
      for (std::size_t m = 0; m < 16; ++m) {
        for (std::size_t n = 0; n < 28; ++n) {
          float want = in.sums[m * 28 + n];
          if (m < s.rows && n < s.columns) {
            std::vector<std::uint32_t> a;
            std::vector<std::uint32_t> b;
            for (std::size_t k = 0; k < s.pairs; ++k) {
              a.push_back(in.a[m * 20 + k]);
              b.push_back(in.b[k * 24 + n]);
            }
            want = tile_element(a, b, want);
          }
          ASSERT_TRUE(same(got[m * 28 + n], want)) << fmt::format(
              "kind {} {}x{}x{} element {}, {}", kind, s.rows, s.columns, s.pairs, m, n);
        }
      }
    }
  }
}

#if defined(__x86_64__)
// The manual does not state whether TDPBF16PS decides about "denormal" before or after rounding:
// then one of the two gives a zero and the other one the smallest normal.
bool differ_where_the_manual_is_silent(float a, float b) {
  const auto at_the_edge = [](float x) { return x == 0.0f || std::abs(x) == 0x1p-126f; };
  return at_the_edge(a) && at_the_edge(b);
}
#endif

TEST(EmulatedTdpbf16ps, EqualsTheHardware) {
#if defined(__x86_64__)
  const CpuFeatures cpu = CpuFeatures::of_processor();
  if (!cpu.amx_bf16) {
    GTEST_SKIP() << (cpu.amx_obstacle.empty() ? "this CPU has no AMX-BF16" : cpu.amx_obstacle);
  }
  Words words(3);
  for (int kind = 0; kind < kKinds; ++kind) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      for (const TileSize& s : kTileSizes) {
        const TileOperands in(words, static_cast<Kind>(kind));
        const auto run = [&](RunTileDot dot) {
          return tile_product(dot, s.rows, s.columns, s.pairs, in.a, in.b, in.sums);
        };
        const std::vector<float> hardware = run(tile_dot_amx);
        const std::vector<float> reference_run = run(emulated::tile_dot);
        for (std::size_t i = 0; i < reference_run.size(); ++i) {
          if (differ_where_the_manual_is_silent(hardware[i], reference_run[i])) continue;
          ASSERT_TRUE(same(hardware[i], reference_run[i])) << fmt::format(
              "kind {} {}x{}x{} element {}: {:08x}, the emulation has {:08x}", kind, s.rows,
              s.columns, s.pairs, i, bits(hardware[i]), bits(reference_run[i]));
        }
      }
    }
  }
#else
  GTEST_SKIP() << "not an x86 CPU";
#endif
}

}  // namespace
}  // namespace tandem::kernels::testing
