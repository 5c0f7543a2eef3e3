// Every implementation of combine.h against the reference, bit for bit, over awkward sizes,
// alignments and values.
#include "tandem/kernels/combine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/float16.h"

namespace tandem::kernels {
namespace {

constexpr std::size_t kSizes[kNumElements] = {1, 1, 4, 8, 8, 4, 8, 2, 2};

std::vector<const CombineKernels*> fast_implementations() {
  std::vector<const CombineKernels*> found;
  for (const char* name : {"avx512", "avx2"}) {
    try {
      found.push_back(&select_combine(CpuFeatures::detect(), name));
    } catch (const ConfigError&) {  // not on this CPU
    }
  }
  return found;
}

// Random bits: every number, infinities and NaNs included.
std::vector<std::uint8_t> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(generator());
  return bytes;
}

template <class T>
bool same_number(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

// NaNs may differ in sign and payload: x86 takes the first operand's, and compilers may exchange
// the operands of +.
bool same(Element element, const std::uint8_t* a, const std::uint8_t* b) {
  switch (element) {
    case Element::kFloat32: {
      float x[2];
      std::memcpy(&x[0], a, 4);
      std::memcpy(&x[1], b, 4);
      return same_number(x[0], x[1]);
    }
    case Element::kFloat64: {
      double x[2];
      std::memcpy(&x[0], a, 8);
      std::memcpy(&x[1], b, 8);
      return same_number(x[0], x[1]);
    }
    case Element::kBfloat16:
    case Element::kFloat16: {
      std::uint16_t x[2];
      std::memcpy(&x[0], a, 2);
      std::memcpy(&x[1], b, 2);
      const unsigned infinity = element == Element::kFloat16 ? 0x7c00u : 0x7f80u;
      return x[0] == x[1] || ((x[0] & 0x7fffu) > infinity && (x[1] & 0x7fffu) > infinity);
    }
    default:
      return std::memcmp(a, b, kSizes[static_cast<std::size_t>(element)]) == 0;
  }
}

TEST(Combine, FastVersionsAgreeWithTheReference) {
  const CombineKernels& reference = select_combine(CpuFeatures::detect(), "reference");
  for (const CombineKernels* fast : fast_implementations()) {
    for (std::size_t e = 0; e < kNumElements; ++e) {
      for (std::size_t op = 0; op < kNumCombines; ++op) {
        for (const std::size_t count : {0, 1, 7, 16, 31, 64, 389, 20000}) {
          for (const bool in_place : {false, true}) {
            const std::size_t bytes = count * kSizes[e];
            // One element beyond the start: not aligned to vectors.
            const auto a = random_bytes(bytes + 8, 1);
            const auto b = random_bytes(bytes + 8, 2);
            std::vector<std::uint8_t> got = a;
            std::vector<std::uint8_t> want(bytes + 8, 0x55);
            const std::size_t offset = kSizes[e];
            fast->pair[e][op](count, (in_place ? got : a).data() + offset, b.data() + offset,
                              got.data() + offset);
            reference.pair[e][op](count, a.data() + offset, b.data() + offset,
                                  want.data() + offset);
            for (std::size_t i = 0; i < count; ++i) {
              const std::size_t at = offset + i * kSizes[e];
              ASSERT_TRUE(same(static_cast<Element>(e), &got[at], &want[at]))
                  << fast->implementation << " element " << e << " op " << op << " at " << i
                  << " of " << count;
            }
            ASSERT_EQ(std::vector<std::uint8_t>(got.begin(), got.begin() + 1),
                      std::vector<std::uint8_t>(a.begin(), a.begin() + 1));
          }
        }
      }
    }
  }
}

TEST(Combine, ConversionsAgreeWithTheReference) {
  const CombineKernels& reference = select_combine(CpuFeatures::detect(), "reference");
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const auto floats = random_bytes(4 * 100003, 3);
  const auto* f32 = reinterpret_cast<const float*>(floats.data());
  for (const CombineKernels* fast : fast_implementations()) {
    std::vector<float> got(65536), want(65536);
    fast->widen_float16(65535, halves.data(), got.data());
    reference.widen_float16(65535, halves.data(), want.data());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_number(got[i], want[i])) << i;
    fast->widen_bfloat16(65535, halves.data(), got.data());
    reference.widen_bfloat16(65535, halves.data(), want.data());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_number(got[i], want[i])) << i;
    std::vector<std::uint16_t> narrow(100003), narrow_want(100003);
    fast->narrow_float16(100003, f32, narrow.data());
    reference.narrow_float16(100003, f32, narrow_want.data());
    EXPECT_EQ(narrow, narrow_want);
    fast->narrow_bfloat16(100003, f32, narrow.data());
    reference.narrow_bfloat16(100003, f32, narrow_want.data());
    EXPECT_EQ(narrow, narrow_want);
  }
}

TEST(Combine, HalfConversionRoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float16 half{static_cast<std::uint16_t>(bits)};
    const float x = to_float(half);
    if (x != x) continue;
    EXPECT_EQ(to_float16(x).bits, half.bits) << bits;
  }
  EXPECT_EQ(to_float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_float16(1.0f + 0x1p-11f).bits, 0x3c00);             // a tie: to even
  EXPECT_EQ(to_float16(1.0f + 0x1p-10f + 0x1p-11f).bits, 0x3c02);  // a tie: to even
  EXPECT_EQ(to_float16(0x1p-25f).bits, 0);                         // a tie below the smallest
  EXPECT_EQ(to_float16(-0x1.8p-24f).bits, 0x8002);
}

TEST(Combine, FastDivisionsAgreeWithTheReference) {
  const CombineKernels& reference = select_combine(CpuFeatures::detect(), "reference");
  for (const CombineKernels* fast : fast_implementations()) {
    for (std::size_t e = 0; e < kNumElements; ++e) {
      if (reference.divide[e] == nullptr) continue;
      for (const int divisor : {1, 2, 3, 7, 48, 1000, 65535}) {
        constexpr std::size_t kCount = 10007;
        std::vector<std::uint8_t> got = random_bytes(kCount * kSizes[e], 4);
        std::vector<std::uint8_t> want = got;
        fast->divide[e](kCount, divisor, got.data());
        reference.divide[e](kCount, divisor, want.data());
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_TRUE(same(static_cast<Element>(e), &got[i * kSizes[e]], &want[i * kSizes[e]]))
              << fast->implementation << " element " << e << " by " << divisor;
        }
      }
    }
  }
}

TEST(Combine, DivisionIsThatOfTheLanguage) {
  for (const char* name : {"reference", ""}) {
    const CombineKernels& kernels = select_combine(CpuFeatures::detect(), name);
    std::vector<float> f32 = {1.0f, -10.0f, 3.0f};
    kernels.divide[static_cast<std::size_t>(Element::kFloat32)](3, 3, f32.data());
    EXPECT_EQ(f32, (std::vector<float>{1.0f / 3.0f, -10.0f / 3.0f, 1.0f}));
    std::vector<std::int8_t> i8 = {-7, 100, 5};
    kernels.divide[static_cast<std::size_t>(Element::kInt8)](3, 2, i8.data());
    EXPECT_EQ(i8, (std::vector<std::int8_t>{-3, 50, 2}));
    std::vector<std::uint8_t> u8 = {255};
    kernels.divide[static_cast<std::size_t>(Element::kUint8)](1, 300, u8.data());
    EXPECT_EQ(u8[0], 0);
  }
}

TEST(Combine, UnknownNamesAreRefusedWithTheList) {
#if defined(__x86_64__)
  constexpr std::string_view kNames = "avx2, reference";
#else
  constexpr std::string_view kNames = "reference";
#endif
  try {
    select_combine(CpuFeatures::detect(), "sse9");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(kNames), std::string::npos);
  }
  EXPECT_THROW(select_combine(CpuFeatures{}, "avx512"), ConfigError);
  EXPECT_EQ(select_combine(CpuFeatures{}).implementation, "reference");
}

}  // namespace
}  // namespace tandem::kernels
