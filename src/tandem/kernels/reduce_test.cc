#include "tandem/kernels/reduce.h"

#include <limits>
#include <vector>

#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Reduce, FastVersionsAgreeWithTheReference) {
  Runtime reference("reference");
  for (const std::string& name : fast_implementations("reduce")) {
    Runtime fast("reduce=" + name);
    for (const std::size_t count : {1, 7, 16, 31, 389, 200000}) {
      const auto a = random_values(count, 1);
      const auto b = random_values(count, 2);
      const auto both = [&](auto f) {
        std::vector<float> got(count), want(count);
        f(fast.context(), got);
        f(reference.context(), want);
        EXPECT_TRUE(same_bits(got, want)) << name << " " << count;
      };
      both([&](const Context& ctx, std::vector<float>& y) {
        add(ctx.kernels, count, a.data(), b.data(), y.data());
      });
      both([&](const Context& ctx, std::vector<float>& y) {
        scale(ctx.kernels, count, 0.3f, a.data(), y.data());
      });
      both([&](const Context& ctx, std::vector<float>& y) {
        std::vector<bfloat16> narrow(count);
        convert(ctx, count, a.data(), narrow.data());
        convert(ctx, count, narrow.data(), y.data());
      });
      EXPECT_NEAR(squared_norm(fast.context().kernels, count, a.data()),
                  squared_norm(reference.context().kernels, count, a.data()),
                  1e-12 * static_cast<double>(count));
    }
  }
}

TEST(VectorWidths, GiveTheSameGradientNorm) {
  Runtime narrow("reduce=" + or_emulation("reduce", "avx2"));
  Runtime wide("reduce=" + or_emulation("reduce", "avx512"));
  Runtime plain("reduce=avx512_emulated");
  for (const std::size_t count : {1, 9, 16, 25, 63, 64, 389, 200000}) {
    const auto x = random_values(count, 3);
    EXPECT_EQ(squared_norm(narrow.context().kernels, count, x.data()),
              squared_norm(wide.context().kernels, count, x.data()))
        << count;
    EXPECT_EQ(squared_norm(narrow.context().kernels, count, x.data()),
              squared_norm(plain.context().kernels, count, x.data()))
        << count;
  }
}

TEST(Reduce, ConversionRoundsToNearestEvenAndKeepsNan) {
  const std::vector<float> x = {1.0f,
                                1.00390625f,
                                1.01171875f,
                                -1.00390625f,
                                kNan,
                                kInfinity,
                                -kInfinity,
                                3.4e38f,
                                1e-40f,
                                -0.0f,
                                std::bit_cast<float>(0x7F800001u),
                                1.0039063f};
  for (const auto& row : implementations("reduce", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    Runtime runtime("reduce=" + row.implementation);
    for (std::size_t repeat : {1u, 3u}) {  // in ragged ends and in whole vectors
      std::vector<float> many;
      for (std::size_t i = 0; i < repeat; ++i) many.insert(many.end(), x.begin(), x.end());
      std::vector<bfloat16> y(many.size());
      convert(runtime.context(), many.size(), many.data(), y.data());
      for (std::size_t i = 0; i < many.size(); ++i) {
        EXPECT_EQ(y[i].bits, to_bfloat16(many[i]).bits) << row.implementation << " element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels::testing
