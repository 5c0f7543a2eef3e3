#include "tandem/kernels/layer_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tandem/kernels/dropout.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
struct LayerNormCase {
  LayerNormCase(std::size_t hidden, float p)
      : batch({1, 7, 40}), H(hidden), dropout{.p = p, .seed = 5, .step = 6, .site = 7} {
    const std::size_t size = batch.rows() * H;
    x = random_values<T>(size, 1);
    residual = random_values(size, 2);
    gamma = random_values(H, 3);
    beta = random_values(H, 4);
    grad_y = random_values(size, 5);
  }
  Batch batch;
  std::size_t H;
  Dropout dropout;
  std::vector<T> x;
  std::vector<float> residual, gamma, beta, grad_y;
};

// The absent parts of a norm: in a layer that is normed before its products, and in RMSNorm.
enum class Absent { kNothing, kXAndBias, kMeanAndBias };

template <class T>
struct LayerNormResults {
  std::vector<float> y, sum, mean, rstd, grad_sum, grad_gamma, grad_beta;
  std::vector<T> y_copy, grad_x;
};

template <class T>
LayerNormResults<T> run(const Context& ctx, const LayerNormCase<T>& c, bool accumulate = false,
                        Absent absent = Absent::kNothing, const float* grad_beside = nullptr) {
  const bool bias = absent == Absent::kNothing, with_x = absent != Absent::kXAndBias;
  const bool centered = absent != Absent::kMeanAndBias;
  const std::size_t rows = c.batch.rows();
  const std::size_t size = rows * c.H;
  LayerNormResults<T> r;
  for (auto* v : {&r.y, &r.sum, &r.grad_sum}) v->resize(size);
  for (auto* v : {&r.mean, &r.rstd}) v->resize(rows);
  for (auto* v : {&r.y_copy, &r.grad_x}) v->resize(size);
  r.grad_gamma = random_values(c.H, 8);
  r.grad_beta = random_values(c.H, 9);
  dropout_add_layer_norm_forward<T>(ctx, c.batch.sequences(), c.H, c.dropout,
                                    {.x = with_x ? c.x.data() : nullptr,
                                     .residual = c.residual.data(),
                                     .gamma = c.gamma.data(),
                                     .beta = bias ? c.beta.data() : nullptr,
                                     .eps = 1e-12f,
                                     .y = r.y.data(),
                                     .y_copy = r.y_copy.data(),
                                     .sum = r.sum.data(),
                                     .mean = centered ? r.mean.data() : nullptr,
                                     .rstd = r.rstd.data()});
  dropout_add_layer_norm_backward<T>(ctx, c.batch.sequences(), c.H, c.dropout,
                                     {.grad_y = c.grad_y.data(),
                                      .sum = r.sum.data(),
                                      .mean = centered ? r.mean.data() : nullptr,
                                      .rstd = r.rstd.data(),
                                      .gamma = c.gamma.data(),
                                      .grad_beside = grad_beside,
                                      .grad_sum = r.grad_sum.data(),
                                      .grad_x = r.grad_x.data(),
                                      .grad_gamma = r.grad_gamma.data(),
                                      .grad_beta = bias ? r.grad_beta.data() : nullptr,
                                      .accumulate = accumulate});
  return r;
}

template <class T>
void compare_layer_norm(const std::string& implementation, std::size_t H, float p,
                        Absent absent = Absent::kNothing) {
  const LayerNormCase<T> c(H, p);
  Runtime fast("layer_norm=" + implementation);
  Runtime reference("reference");
  const auto got = run(fast.context(), c, true, absent);
  const auto want = run(reference.context(), c, true, absent);
  const std::string what = fmt::format("{} H {} p {}", implementation, H, p);
  // Normalised values are below sqrt(H) and their error follows that of the mean, a sum of H terms
  // of magnitude 2; the smallest variance of a row magnifies it.
  const double smallest_deviation = 1.0 / largest_magnitude(want.rstd);
  const double bound =
      8.0 * std::sqrt(static_cast<double>(H)) * kFloatEpsilon / std::min(1.0, smallest_deviation);
  const auto constant = [](double b) { return [b](std::size_t) { return b; }; };
  expect_near(got.sum, want.sum, constant(4.0 * kFloatEpsilon), what + " sum");
  expect_near(got.mean, want.mean, constant(bound), what + " mean");
  expect_near(got.rstd, want.rstd, constant(bound * largest_magnitude(want.rstd)), what + " rstd");
  expect_near(got.y, want.y, constant(bound), what + " y");
  expect_near(got.y_copy, want.y_copy, constant(bound), what + " y copy");
  const double grad_bound = bound * std::max(1.0, largest_magnitude(want.grad_sum));
  expect_near(got.grad_sum, want.grad_sum, constant(grad_bound), what + " grad_sum");
  expect_near(got.grad_x, want.grad_x, constant(2.0 * grad_bound), what + " grad_x");
  const double rows_bound = bound * static_cast<double>(c.batch.rows());
  expect_near(got.grad_gamma, want.grad_gamma, constant(rows_bound), what + " grad_gamma");
  expect_near(got.grad_beta, want.grad_beta, constant(rows_bound), what + " grad_beta");
}

TEST(LayerNorm, FastVersionsAgreeWithTheReference) {
  for (const std::string& name : fast_implementations("layer_norm")) {
    for (const std::size_t H : {2, 32, 48, 129, 384}) {
      for (const float p : {0.0f, 0.1f}) {
        if (H == 2 && p > 0) continue;  // both elements dropped: a variance of rounding errors
        compare_layer_norm<float>(name, H, p);
        compare_layer_norm<bfloat16>(name, H, p);
      }
    }
  }
}

TEST(RmsNorm, FastVersionsAgreeWithTheReference) {
  for (const std::string& name : fast_implementations("layer_norm")) {
    for (const std::size_t H : {32, 48, 129, 576}) {
      for (const float p : {0.0f, 0.1f}) {
        compare_layer_norm<float>(name, H, p, Absent::kMeanAndBias);
        compare_layer_norm<bfloat16>(name, H, p, Absent::kMeanAndBias);
      }
    }
  }
}

TEST(RmsNorm, IsTheRootMeanSquare) {
  for (const std::string& name : running_implementations("layer_norm")) {
    Runtime runtime("layer_norm=" + name);
    const LayerNormCase<float> c(48, 0.0f);
    const auto r = run(runtime.context(), c, false, Absent::kMeanAndBias);
    for (std::size_t row = 0; row < c.batch.rows(); ++row) {
      const float* const sum = r.sum.data() + row * c.H;
      double squares = 0;
      for (std::size_t i = 0; i < c.H; ++i) squares += static_cast<double>(sum[i]) * sum[i] / 48;
      for (std::size_t i = 0; i < c.H; ++i)
        ASSERT_NEAR(r.y[row * c.H + i], sum[i] / std::sqrt(squares) * c.gamma[i], 1e-6) << name;
      EXPECT_EQ(r.mean[row], 0.0f);  // not written
    }
  }
}

TEST(RmsNorm, ReferenceBackwardIsTheDerivativeOfForward) {
  Runtime runtime("reference");
  for (const float p : {0.0f, 0.25f}) {
    LayerNormCase<float> c(24, p);
    const auto r = run(runtime.context(), c, false, Absent::kMeanAndBias);
    const auto loss = [&] {
      return weighted_sum(run(runtime.context(), c, false, Absent::kMeanAndBias).y, c.grad_y);
    };
    expect_gradient(c.x, r.grad_x, loss, "x");
    expect_gradient(c.residual, r.grad_sum, loss, "residual");
    expect_gradient(c.gamma, r.grad_gamma, loss, "gamma");
  }
}

TEST(RmsNorm, IsRecomputedToTheSameBits) {
  for (const std::string& name : running_implementations("layer_norm")) {
    Runtime runtime("layer_norm=" + name);
    const LayerNormCase<bfloat16> c(129, 0.1f);
    const auto r = run(runtime.context(), c, false, Absent::kMeanAndBias);
    std::vector<float> y(r.y.size());
    std::vector<bfloat16> y_copy(y.size());
    layer_norm_recompute<bfloat16>(runtime.context(), c.batch.sequences(), c.H,
                                   {.sum = r.sum.data(),
                                    .rstd = r.rstd.data(),
                                    .gamma = c.gamma.data(),
                                    .y = y.data(),
                                    .y_copy = y_copy.data()});
    EXPECT_TRUE(same_bits(y, r.y) && same_bits(y_copy, r.y_copy)) << name;
  }
}

TEST(LayerNorm, ReferenceBackwardIsTheDerivativeOfForward) {
  Runtime runtime("reference");
  for (const float p : {0.0f, 0.25f}) {
    LayerNormCase<float> c(24, p);
    const auto r = run(runtime.context(), c);
    const auto loss = [&] { return weighted_sum(run(runtime.context(), c).y, c.grad_y); };
    expect_gradient(c.x, r.grad_x, loss, "x");
    expect_gradient(c.residual, r.grad_sum, loss, "residual");
    expect_gradient(c.gamma, r.grad_gamma, loss, "gamma");
    expect_gradient(c.beta, r.grad_beta, loss, "beta");
  }
}

template <class T>
void compare_without_x_and_bias(const std::string& implementation, std::size_t H) {
  LayerNormCase<T> c(H, 0.0f);
  std::fill(c.x.begin(), c.x.end(), T{});
  std::fill(c.beta.begin(), c.beta.end(), 0.0f);
  Runtime runtime("layer_norm=" + implementation);
  const auto want = run(runtime.context(), c);
  const auto got = run(runtime.context(), c, false, Absent::kXAndBias);
  SCOPED_TRACE(fmt::format("{} H {}", implementation, H));
  EXPECT_TRUE(same_bits(got.y, want.y) && same_bits(got.y_copy, want.y_copy));
  EXPECT_TRUE(same_bits(got.sum, c.residual) && same_bits(got.rstd, want.rstd));
  EXPECT_TRUE(same_bits(got.grad_sum, want.grad_sum));
  EXPECT_TRUE(same_bits(got.grad_gamma, want.grad_gamma));
  const auto beside = random_values(want.grad_sum.size(), 11);
  const auto sum = run(runtime.context(), c, false, Absent::kXAndBias, beside.data()).grad_sum;
  for (std::size_t i = 0; i < sum.size(); ++i)
    ASSERT_NEAR(sum[i], want.grad_sum[i] + beside[i], 2e-6 * largest_magnitude(want.rstd)) << i;
}

TEST(LayerNorm, OfTheResidualAloneWithoutABias) {
  for (const std::string& name : running_implementations("layer_norm")) {
    for (const std::size_t H : {2, 32, 129}) {
      compare_without_x_and_bias<float>(name, H);
      compare_without_x_and_bias<bfloat16>(name, H);
    }
  }
}

template <class T>
void expect_bits_of_any_width(const std::string& implementation, std::size_t H, float p,
                              Absent absent = Absent::kNothing) {
  const LayerNormCase<T> c(H, p);
  Runtime here("layer_norm=" + or_emulation("layer_norm", implementation));
  Runtime plain("layer_norm=avx512_emulated");
  const auto got = run(here.context(), c, false, absent);
  const auto want = run(plain.context(), c, false, absent);
  SCOPED_TRACE(fmt::format("{} H {} p {}", implementation, H, p));
  EXPECT_TRUE(same_bits(got.y, want.y));
  EXPECT_TRUE(same_bits(got.y_copy, want.y_copy));
  EXPECT_TRUE(same_bits(got.mean, want.mean) && same_bits(got.rstd, want.rstd));
  EXPECT_TRUE(same_bits(got.grad_sum, want.grad_sum) && same_bits(got.grad_x, want.grad_x));
  EXPECT_TRUE(same_bits(got.grad_gamma, want.grad_gamma));
  EXPECT_TRUE(same_bits(got.grad_beta, want.grad_beta));
}

TEST(VectorWidths, GiveTheSameLayerNorm) {
  for (const std::string implementation : {"avx2", "avx512"}) {
    for (const std::size_t H : {3, 8, 13, 16, 24, 31, 129, 384}) {
      for (const float p : {0.0f, 0.1f}) {
        expect_bits_of_any_width<float>(implementation, H, p);
        expect_bits_of_any_width<bfloat16>(implementation, H, p);
        expect_bits_of_any_width<bfloat16>(implementation, H, p, Absent::kMeanAndBias);
      }
    }
  }
}

TEST(LayerNorm, SameBitsForAnyNumberOfThreads) {
  for (const auto& row : implementations("layer_norm", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    LayerNormCase<bfloat16> c(48, 0.1f);
    c.batch = Batch({130, 77, 3});
    const std::size_t size = c.batch.rows() * c.H;
    c.x = random_values<bfloat16>(size, 1);
    c.residual = random_values(size, 2);
    c.grad_y = random_values(size, 3);
    Runtime one("layer_norm=" + row.implementation, 1);
    const auto want = run(one.context(), c);
    for (const int num_threads : {2, 3}) {
      Runtime many("layer_norm=" + row.implementation, num_threads);
      const auto got = run(many.context(), c);
      EXPECT_TRUE(same_bits(got.y, want.y)) << row.implementation;
      EXPECT_TRUE(same_bits(got.grad_x, want.grad_x)) << row.implementation;
      EXPECT_TRUE(same_bits(got.grad_gamma, want.grad_gamma)) << row.implementation;
      EXPECT_TRUE(same_bits(got.grad_beta, want.grad_beta)) << row.implementation;
    }
  }
}

TEST(LayerNorm, NanStaysInItsRow) {
  for (const auto& row : implementations("layer_norm", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    Runtime runtime("layer_norm=" + row.implementation);
    LayerNormCase<float> c(48, 0.0f);
    c.x[2 * 48 + 47] = kNan;
    const auto r = run(runtime.context(), c);
    EXPECT_TRUE(std::isnan(r.y[2 * 48])) << row.implementation;
    EXPECT_FALSE(std::isnan(r.y[3 * 48])) << row.implementation;
    EXPECT_FALSE(std::isnan(r.y[1 * 48])) << row.implementation;
  }
}

}  // namespace
}  // namespace tandem::kernels::testing
