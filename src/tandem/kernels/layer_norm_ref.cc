// The reference layer normalisation of one row, sums in f64.
#include <cmath>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

float factor(const DropoutMask& mask, std::uint32_t row, std::size_t column) {
  return dropout_factor(mask, row, static_cast<std::uint32_t>(column));
}

// From the f32 statistics, which are what forward saves.
template <class T>
void recompute(const LayerNormRowRecompute<T>& r) {
  for (std::size_t c = 0; c < r.H; ++c) {
    const double xhat =
        (static_cast<double>(r.sum[c]) - static_cast<double>(r.mean)) * static_cast<double>(r.rstd);
    const double beta = r.beta == nullptr ? 0.0 : static_cast<double>(r.beta[c]);
    const auto y = static_cast<float>(xhat * static_cast<double>(r.gamma[c]) + beta);
    if (r.y != nullptr) r.y[c] = y;
    if (r.y_copy != nullptr) r.y_copy[c] = to_storage<T>(y);
  }
}

template <class T>
void forward(const LayerNormRow<T>& r) {
  double mean = 0;
  for (std::size_t c = 0; c < r.H; ++c) {
    const float residual = r.residual == nullptr ? 0.0f : r.residual[c];
    const float x = r.x == nullptr ? 0.0f : to_float(r.x[c]) * factor(r.mask, r.row, c);
    r.sum[c] = x + residual;
    mean += r.sum[c];
  }
  mean = r.mean == nullptr ? 0.0 : mean / static_cast<double>(r.H);
  double variance = 0;
  for (std::size_t c = 0; c < r.H; ++c) variance += (r.sum[c] - mean) * (r.sum[c] - mean);
  const double rstd =
      1.0 / std::sqrt(variance / static_cast<double>(r.H) + static_cast<double>(r.eps));
  if (r.mean != nullptr) *r.mean = static_cast<float>(mean);
  *r.rstd = static_cast<float>(rstd);
  recompute<T>({.H = r.H,
                .sum = r.sum,
                .gamma = r.gamma,
                .beta = r.beta,
                .mean = static_cast<float>(mean),
                .rstd = *r.rstd,
                .y = r.y,
                .y_copy = r.y_copy});
}

// With xhat = (sum - mean) rstd and g = gamma grad_y:   grad_sum = rstd (g - mean(g) - xhat mean(g
// xhat)). RMSNorm has no mean(g).
template <class T>
void backward(const LayerNormRowBackward<T>& r) {
  const auto xhat = [&](std::size_t c) {
    return (static_cast<double>(r.sum[c]) - static_cast<double>(r.mean)) *
           static_cast<double>(r.rstd);
  };
  double mean_g = 0;
  double mean_g_xhat = 0;
  for (std::size_t c = 0; c < r.H; ++c) {
    const double g = static_cast<double>(r.gamma[c]) * static_cast<double>(r.grad_y[c]);
    if (r.centered) mean_g += g / static_cast<double>(r.H);
    mean_g_xhat += g * xhat(c) / static_cast<double>(r.H);
    r.grad_gamma[c] += static_cast<float>(static_cast<double>(r.grad_y[c]) * xhat(c));
    if (r.grad_beta != nullptr) r.grad_beta[c] += r.grad_y[c];
  }
  for (std::size_t c = 0; c < r.H; ++c) {
    const double g = static_cast<double>(r.gamma[c]) * static_cast<double>(r.grad_y[c]);
    const double beside = r.grad_beside == nullptr ? 0.0 : static_cast<double>(r.grad_beside[c]);
    r.grad_sum[c] = static_cast<float>(
        static_cast<double>(r.rstd) * (g - mean_g - xhat(c) * mean_g_xhat) + beside);
    if (r.grad_x != nullptr) r.grad_x[c] = to_storage<T>(r.grad_sum[c] * factor(r.mask, r.row, c));
  }
}

}  // namespace

const LayerNormKernels kLayerNormReference = {
    .f32 = {forward<float>, recompute<float>, backward<float>},
    .bf16 = {forward<bfloat16>, recompute<bfloat16>, backward<bfloat16>},
};

}  // namespace tandem::kernels
