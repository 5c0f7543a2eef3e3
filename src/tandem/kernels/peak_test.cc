#include "tandem/kernels/peak.h"

#include <gtest/gtest.h>

#include "tandem/core/buffer.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

TEST(Peak, EveryLoopReportsItsOperations) {
  const Buffer zeros(kL1Floats * sizeof(float));
  const auto families = peak_families(CpuFeatures::detect());
  ASSERT_FALSE(families.empty());
  for (const PeakFamily& family : families) {
    const double flops = family.registers(10);
    EXPECT_GT(flops, 0) << family.name;
    EXPECT_EQ(family.registers(30), 3 * flops) << family.name;
    if (family.l1 == nullptr) continue;
    // Two FLOPs per element of the block, which holds pairs of bf16 instead of floats, and with
    // tiles each element meets 16 rows; a loop may leave the end of the block out.
    const double elements = (family.dtype == "bf16" ? 2.0 : 1.0) * kL1Floats;
    const double most = (family.name == "amx" ? 16.0 : 1.0) * 2.0 * elements;
    const double per_block = family.l1(1, zeros.as<float>().data());
    EXPECT_LE(per_block, most) << family.name;
    EXPECT_GT(per_block, 0.9 * most) << family.name;
    EXPECT_EQ(family.l1(7, zeros.as<float>().data()), 7 * per_block) << family.name;
  }
}

TEST(Peak, StreamsPassOverEveryElement) {
  CpuFeatures only_avx2 = CpuFeatures::detect();
  only_avx2.avx512 = false;
  for (const CpuFeatures& cpu : {CpuFeatures(), only_avx2, CpuFeatures::detect()}) {
    const StreamLoops& loops = stream_loops(cpu);
    constexpr std::size_t kCount = 256;
    const auto x = random_values(kCount, 1);
    double sum = 0;
    for (const float e : x) sum += static_cast<double>(e);
    EXPECT_NEAR(static_cast<double>(loops.read(kCount, x.data())), sum, 1e-4);
    std::vector<float> y(kCount);
    loops.copy(kCount, x.data(), y.data());
    EXPECT_TRUE(same_bits(x, y));
    std::vector<float> p(kCount, 1.0f), m(kCount, 2.0f), v(kCount, 3.0f);
    std::vector<bfloat16> copy(kCount);
    loops.update(kCount, x.data(), p.data(), m.data(), v.data(), copy.data());
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(p[i], 1.0f + x[i]);
      EXPECT_EQ(m[i], 2.0f + x[i]);
      EXPECT_EQ(v[i], 3.0f + x[i]);
      EXPECT_EQ(copy[i], to_bfloat16(p[i]));
    }
    loops.update(kCount, x.data(), p.data(), m.data(), v.data(), nullptr);
    EXPECT_EQ(p[kCount - 1], 1.0f + x[kCount - 1] + x[kCount - 1]);
  }
}

}  // namespace
}  // namespace tandem::kernels::testing
