#include "tandem/kernels/adamw.h"

#include <bit>
#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

constexpr std::size_t kCounts[] = {1, 7, 16, 31, 389, 40000};

struct AdamWState {
  std::vector<float> p, m, v;
  std::vector<bfloat16> copy;
};

AdamWState run_adamw(const Context& ctx, std::size_t count) {
  AdamWState s{random_values(count, 1), std::vector<float>(count), std::vector<float>(count),
               std::vector<bfloat16>(count)};
  for (std::int64_t t = 1; t <= 3; ++t) {
    const auto grad = random_values(count, 10 + static_cast<std::uint64_t>(t));
    adamw(ctx, count, {.lr = 1e-2, .weight_decay = 0.1, .step = t, .grad_scale = 0.5f}, grad.data(),
          s.p.data(), s.m.data(), s.v.data(), s.copy.data());
  }
  return s;
}

TEST(AdamW, MatchesTheFormulaInF64) {
  for (const auto& row : implementations("optimizer", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    for (const std::size_t count : kCounts) {
      Runtime runtime("optimizer=" + row.implementation);
      const AdamWState got = run_adamw(runtime.context(), count);
      const auto start = random_values(count, 1);
      for (std::size_t i = 0; i < count; ++i) {
        double p = static_cast<double>(start[i]), m = 0, v = 0;
        for (int t = 1; t <= 3; ++t) {
          const double g = 0.5 * static_cast<double>(
                                     random_values(i + 1, 10 + static_cast<std::uint64_t>(t))[i]);
          p *= 1.0 - 1e-2 * 0.1;
          m = 0.9 * m + 0.1 * g;
          v = 0.999 * v + 0.001 * g * g;
          p -= 1e-2 / (1.0 - std::pow(0.9, t)) * m /
               (std::sqrt(v) / std::sqrt(1.0 - std::pow(0.999, t)) + 1e-8);
        }
        ASSERT_NEAR(got.p[i], p, 1e-6) << row.implementation << " " << i;
        ASSERT_EQ(got.copy[i], to_bfloat16(got.p[i]));
        if (count > 1000 && i > 40) break;  // random_values(i) is quadratic; the elements are alike
      }
    }
  }
}

TEST(AdamW, SameBitsForAnyThreadsAndAnyCut) {
  for (const auto& row : implementations("optimizer", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    Runtime one("optimizer=" + row.implementation, 1);
    Runtime three("optimizer=" + row.implementation, 3);
    const AdamWState want = run_adamw(one.context(), 40000);
    const AdamWState got = run_adamw(three.context(), 40000);
    EXPECT_TRUE(same_bits(got.p, want.p) && same_bits(got.m, want.m) && same_bits(got.v, want.v))
        << row.implementation;
    // The same elements in two calls of odd sizes.
    AdamWState cut{random_values(100, 1), std::vector<float>(100), std::vector<float>(100),
                   std::vector<bfloat16>(100)};
    AdamWState whole = cut;
    const auto grad = random_values(100, 2);
    const AdamWStep step{.lr = 1e-3, .weight_decay = 0.01, .step = 1};
    adamw(one.context(), 100, step, grad.data(), whole.p.data(), whole.m.data(), whole.v.data(),
          nullptr);
    adamw(one.context(), 37, step, grad.data(), cut.p.data(), cut.m.data(), cut.v.data(), nullptr);
    adamw(one.context(), 63, step, grad.data() + 37, cut.p.data() + 37, cut.m.data() + 37,
          cut.v.data() + 37, nullptr);
    EXPECT_TRUE(same_bits(cut.p, whole.p)) << row.implementation;
  }
}

// Runs of elements with zero moments and gradients of both signs of zero, between others; then all
// of them get a gradient.
AdamWState run_sparse(const Context& ctx, const AdamWStep& options) {
  constexpr std::size_t kCount = 4099;
  AdamWState s{random_values(kCount, 1), std::vector<float>(kCount), std::vector<float>(kCount),
               std::vector<bfloat16>(kCount)};
  s.p[70] = -0.0f;
  for (std::size_t i = 0; i < kCount; ++i) s.copy[i] = to_bfloat16(s.p[i]);
  AdamWStep step = options;
  for (step.step = 1; step.step <= 3; ++step.step) {
    auto grad = random_values(kCount, 10 + static_cast<std::uint64_t>(step.step));
    for (std::size_t i = 0; i < kCount && step.step < 3; ++i) {
      if (i % 1000 >= 40) grad[i] = i % 2 == 0 ? 0.0f : -0.0f;
    }
    adamw(ctx, kCount, step, grad.data(), s.p.data(), s.m.data(), s.v.data(), s.copy.data());
  }
  return s;
}

// The reference knows no zeros. eps = 0 and a gradient norm that is not a number make NaN of them.
TEST(AdamW, UntouchedElementsGetTheBitsOfTheDensePass) {
  Runtime reference("optimizer=reference");
  const AdamWStep cases[] = {{.lr = 1e-2},
                             {.lr = 1e-2, .weight_decay = 0.1, .grad_scale = 0.5f},
                             {.lr = 0, .weight_decay = 0.1},
                             {.lr = 1e-2, .eps = 0},
                             {.lr = 1e-2, .grad_scale = std::nanf("")}};
  for (const std::string& name : fast_implementations("optimizer")) {
    Runtime fast("optimizer=" + name);
    for (const AdamWStep& step : cases) {
      const AdamWState want = run_sparse(reference.context(), step);
      const AdamWState got = run_sparse(fast.context(), step);
      const std::string what = fmt::format("{} decay {} eps {} scale {}", name, step.weight_decay,
                                           step.eps, step.grad_scale);
      for (std::size_t i = 0; i < want.p.size(); ++i) {
        ASSERT_EQ(std::isnan(got.p[i]), std::isnan(want.p[i])) << what << " " << i;
        if (std::isnan(want.p[i])) continue;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(got.p[i]), std::bit_cast<std::uint32_t>(want.p[i]))
            << what << " " << i;
        ASSERT_EQ(got.m[i], want.m[i]) << what << " " << i;
        ASSERT_EQ(got.v[i], want.v[i]) << what << " " << i;
        ASSERT_EQ(got.copy[i].bits, want.copy[i].bits) << what << " " << i;
      }
    }
  }
}

TEST(AdamW, StepsCountFromOne) {
  Runtime runtime;
  EXPECT_THROW(
      adamw(runtime.context(), 0, {.step = 0}, nullptr, nullptr, nullptr, nullptr, nullptr),
      InvalidArgument);
}

}  // namespace
}  // namespace tandem::kernels::testing
