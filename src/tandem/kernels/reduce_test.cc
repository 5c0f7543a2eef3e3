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
        add_arrays(ctx, count, a.data(), b.data(), y.data());
      });
      both([&](const Context& ctx, std::vector<float>& y) {
        y = a;
        scale_array(ctx, count, 0.3f, y.data());
      });
      both([&](const Context& ctx, std::vector<float>& y) {
        std::vector<bfloat16> narrow(count);
        convert(ctx, count, a.data(), narrow.data());
        convert(ctx, count, narrow.data(), y.data());
      });
      std::vector<double> got(num_chunks(count, kNormChunk)), want(got.size());
      squared_norm_partials(fast.context(), count, a.data(), got.data());
      squared_norm_partials(reference.context(), count, a.data(), want.data());
      EXPECT_NEAR(sum_in_order(got), sum_in_order(want), 1e-12 * static_cast<double>(count));
    }
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

TEST(Reduce, SquaredNormPartialsDoNotDependOnWhoOwnsThem) {
  const std::size_t count = 3 * kNormChunk + 100;
  const auto x = random_values(count, 1);
  Runtime one("", 1);
  Runtime three("", 3);
  std::vector<double> whole(4), pieces(4);
  squared_norm_partials(one.context(), count, x.data(), whole.data());
  squared_norm_partials(three.context(), kNormChunk, x.data(), pieces.data());
  squared_norm_partials(three.context(), count - kNormChunk, x.data() + kNormChunk,
                        pieces.data() + 1);
  EXPECT_TRUE(same_bits(whole, pieces));
}

}  // namespace
}  // namespace tandem::kernels::testing
