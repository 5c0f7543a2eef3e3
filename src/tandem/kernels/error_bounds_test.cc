// The error bounds that docs/numerics.md states for whole rows: LayerNorm, the softmax inside
// attention, the loss. Exact is what f64 gives for the same f32 operands (simd_math_test.cc has the
// functions of one number).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tandem/kernels/attention.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/kernels/kernel_test_support.h"
#include "tandem/kernels/layer_norm.h"

namespace tandem::kernels::testing {
namespace {

// The largest |got - exact| in units that may differ from element to element.
class Worst {
 public:
  void see(double got, double exact, double unit) {
    const double error = std::abs(got - exact) / unit;
    worst_ = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst_, error);
  }
  double units() const { return worst_; }

 private:
  double worst_ = 0;
};

struct LayerNormErrors {
  Worst y, grad_sum, grad_gamma, grad_beta;
};

// A batch of training: 12 x 384 rows, whose mean is about as large as their deviation.
LayerNormErrors layer_norm_errors(const Context& ctx, std::size_t H) {
  const Batch batch(std::vector<std::uint32_t>(12, 384));
  const std::size_t rows = batch.rows();
  auto x = random_values(rows * H, 1);
  auto gamma = random_values(H, 2);
  const auto beta = random_values(H, 3);
  const auto grad_y = random_values(rows * H, 4);
  for (float& e : x) e += 0.5f;
  for (float& e : gamma) e = 1.0f + 0.5f * e;
  std::vector<float> y(x.size()), sum(x.size()), grad_sum(x.size());
  std::vector<float> mean(rows), rstd(rows), grad_gamma(H), grad_beta(H);
  dropout_add_layer_norm_forward<float>(ctx, batch.sequences(), H, {},
                                        {.x = x.data(),
                                         .gamma = gamma.data(),
                                         .beta = beta.data(),
                                         .y = y.data(),
                                         .sum = sum.data(),
                                         .mean = mean.data(),
                                         .rstd = rstd.data()});
  dropout_add_layer_norm_backward<float>(ctx, batch.sequences(), H, {},
                                         {.grad_y = grad_y.data(),
                                          .sum = sum.data(),
                                          .mean = mean.data(),
                                          .rstd = rstd.data(),
                                          .gamma = gamma.data(),
                                          .grad_sum = grad_sum.data(),
                                          .grad_gamma = grad_gamma.data(),
                                          .grad_beta = grad_beta.data()});
  LayerNormErrors errors;
  std::vector<double> exact_gamma(H), exact_beta(H), size_gamma(H), size_beta(H), xhat(H), g(H);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const x_row = x.data() + row * H;
    const float* const grad_row = grad_y.data() + row * H;
    const auto n = static_cast<double>(H);
    double exact_mean = 0, variance = 0, mean_g = 0, mean_g_xhat = 0, largest_g = 0;
    for (std::size_t c = 0; c < H; ++c) exact_mean += static_cast<double>(x_row[c]) / n;
    for (std::size_t c = 0; c < H; ++c) variance += std::pow(x_row[c] - exact_mean, 2) / n;
    const double exact_rstd = 1 / std::sqrt(variance + static_cast<double>(1e-12f));
    for (std::size_t c = 0; c < H; ++c) {
      const auto grad = static_cast<double>(grad_row[c]);
      xhat[c] = (x_row[c] - exact_mean) * exact_rstd;
      g[c] = grad * static_cast<double>(gamma[c]);
      mean_g += g[c] / n;
      mean_g_xhat += g[c] * xhat[c] / n;
      largest_g = std::max(largest_g, std::abs(g[c]));
      exact_gamma[c] += grad * xhat[c];
      exact_beta[c] += grad;
      size_gamma[c] += std::abs(grad) * (1 + std::abs(xhat[c]));
      size_beta[c] += std::abs(grad);
    }
    for (std::size_t c = 0; c < H; ++c) {
      const double scale = std::abs(static_cast<double>(gamma[c]));
      const double shift = static_cast<double>(beta[c]);
      errors.y.see(y[row * H + c], static_cast<double>(gamma[c]) * xhat[c] + shift,
                   kFloatEpsilon * (scale * (1 + std::abs(xhat[c])) + std::abs(shift)));
      errors.grad_sum.see(grad_sum[row * H + c],
                          exact_rstd * (g[c] - mean_g - xhat[c] * mean_g_xhat),
                          kFloatEpsilon * exact_rstd * largest_g * (1 + std::abs(xhat[c])));
    }
  }
  for (std::size_t c = 0; c < H; ++c) {
    errors.grad_gamma.see(grad_gamma[c], exact_gamma[c], kFloatEpsilon * size_gamma[c]);
    errors.grad_beta.see(grad_beta[c], exact_beta[c], kFloatEpsilon * size_beta[c]);
  }
  return errors;
}

TEST(ErrorBounds, LayerNorm) {
  for (const std::string& name : fast_implementations("layer_norm")) {
    Runtime runtime("layer_norm=" + name);
    for (const std::size_t H : {384, 768, 1024}) {
      const LayerNormErrors errors = layer_norm_errors(runtime.context(), H);
      EXPECT_LE(errors.y.units(), 5) << name << " " << H;
      EXPECT_LE(errors.grad_sum.units(), 5) << name << " " << H;
      EXPECT_LE(errors.grad_gamma.units(), 0.5) << name << " " << H;
      EXPECT_LE(errors.grad_beta.units(), 0.5) << name << " " << H;
    }
  }
}

struct SoftmaxErrors {
  Worst probability, log_sum_exp;
};

// With unit vectors as keys and as values, attention's scores are the queries themselves and its
// output is the softmax of each row: nothing else rounds. Heads of 64 and 256, whose 1 / sqrt(D) is
// a power of two.
SoftmaxErrors softmax_errors(const Context& ctx, std::size_t D, float range) {
  const auto scale = std::sqrt(static_cast<float>(D));
  const Batch batch({static_cast<std::uint32_t>(D)});
  std::vector<float> qkv(D * 3 * D), out(D * D), log_sum_exp(D);
  const auto scores = random_values(D * D, D);
  for (std::size_t row = 0; row < D; ++row) {
    float* const q = qkv.data() + row * 3 * D;
    for (std::size_t d = 0; d < D; ++d) q[d] = scores[row * D + d] * range * scale;
    q[D + row] = 1;
    q[2 * D + row] = 1;
  }
  attention_forward(ctx, batch.sequences(), {1, D}, {}, qkv.data(), out.data(), log_sum_exp.data());
  SoftmaxErrors errors;
  for (std::size_t row = 0; row < D; ++row) {
    const auto score = [&](std::size_t key) {
      return static_cast<double>(qkv[row * 3 * D + key] / scale);
    };
    double largest = score(0), sum = 0;
    for (std::size_t key = 1; key < D; ++key) largest = std::max(largest, score(key));
    for (std::size_t key = 0; key < D; ++key) sum += std::exp(score(key) - largest);
    for (std::size_t key = 0; key < D; ++key) {
      const double below = largest - score(key);
      const double p = std::exp(-below) / sum;
      errors.probability.see(out[row * D + key], p, kFloatEpsilon * (1 + below) * p);
    }
    const double exact = largest + std::log(sum);
    errors.log_sum_exp.see(log_sum_exp[row], exact, kFloatEpsilon * std::max(1.0, std::abs(exact)));
  }
  return errors;
}

TEST(ErrorBounds, SoftmaxInsideAttention) {
  for (const std::string& name : fast_implementations("attention")) {
    Runtime runtime("attention=" + name);
    for (const std::size_t D : {64, 256}) {
      for (const float range : {1.0f, 10.0f, 30.0f}) {
        const SoftmaxErrors errors = softmax_errors(runtime.context(), D, range);
        EXPECT_LE(errors.probability.units(), 4) << name << " " << D << " " << range;
        EXPECT_LE(errors.log_sum_exp.units(), 2) << name << " " << D << " " << range;
      }
    }
  }
}

// The loss is computed in f64: exact is what long double gives.
TEST(ErrorBounds, CrossEntropy) {
  Runtime runtime;
  const std::vector<std::uint32_t> lengths = {384, 100, 17, 1};
  const Batch batch(lengths);
  const std::vector<std::int32_t> start = {5, 99, 0, 0};
  const std::vector<std::int32_t> end = {383, 1, 16, 0};
  auto logits = random_values(batch.rows() * 2, 1);
  for (float& e : logits) e *= 10;
  std::vector<float> grad(logits.size());
  const double loss = span_cross_entropy(runtime.context(), batch.sequences(), logits.data(),
                                         start.data(), end.data(), 1.0f, grad.data());
  Worst gradient;
  long double exact_loss = 0;
  const double share = 0.5 / static_cast<double>(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (const std::size_t side : {0, 1}) {
      const auto target = static_cast<std::size_t>((side == 0 ? start : end)[i]);
      const auto at = [&](std::size_t row) {
        return 2 * (batch.sequences().row_begin[i] + row) + side;
      };
      long double sum = 0;
      for (std::size_t row = 0; row < lengths[i]; ++row)
        sum += std::exp(static_cast<long double>(logits[at(row)]));
      exact_loss += share * (std::log(sum) - logits[at(target)]);
      for (std::size_t row = 0; row < lengths[i]; ++row) {
        const long double p = std::exp(static_cast<long double>(logits[at(row)])) / sum;
        const auto exact = static_cast<double>(share * (p - (row == target ? 1 : 0)));
        gradient.see(grad[at(row)], exact, kFloatEpsilon * std::abs(exact) + 0x1p-50 * share);
      }
    }
  }
  EXPECT_LE(gradient.units(), 1);
  EXPECT_NEAR(loss, static_cast<double>(exact_loss), 0x1p-48 * (1 + largest_magnitude(logits)));
}

}  // namespace
}  // namespace tandem::kernels::testing
