// The three products of a linear layer, to be verified and timed.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "apps/bench/data.h"
#include "tandem/kernels/linear.h"

namespace tandem::apps::bench {

using kernels::Context;

// A linear layer as the encoder has it: y = x W^T + b.
struct Layer {
  std::string_view name;
  std::size_t N, K;           // out_features, in_features
  bool adds_to_the_residual;  // dX is f32 and added to the gradient of the residual stream
};

inline std::vector<Layer> layers_of(const models::ModelConfig& config) {
  const std::size_t H = config.hidden_size;
  const std::size_t I = config.intermediate_size;
  const bool gated = config.family->bias == nn::Bias::kNo;  // ModernBERT's feed-forward part
  return {{"qkv", 3 * H, H, true},
          {"attention output", H, H, false},
          {"up", gated ? 2 * I : I, H, true},
          {"down", H, I, false}};
}

// The products are verified on whole rows (dW: rows of some output features) spread over the
// result: the whole reference product would take minutes.
inline constexpr std::size_t kSamples = 8;
inline std::size_t sampled(std::size_t i, std::size_t count) {
  return std::min(i * (count - 1) / (kSamples - 1), count - 1);
}

// Operands are below 1: partial sums stay near sqrt(k), and the roundings of k steps add up like a
// random walk.
inline double bound(std::size_t reduction) {
  return 4.0 * static_cast<double>(reduction + 1) * kFloatEpsilon;
}

template <class T>
class Products {
 public:
  Products(ThreadPool& threads, std::size_t M, const Layer& layer)
      : M_(M),
        N_(layer.N),
        K_(layer.K),
        adds_(layer.adds_to_the_residual),
        x_(Array<T>::random(threads, M_ * K_, 1)),
        weight_(Array<T>::random(threads, N_ * K_, 2)),
        grad_y_(Array<T>::random(threads, M_ * N_, 3)),
        bias_(Array<float>::random(threads, N_, 4)),
        y_(Array<T>::random(threads, M_ * N_, 5)),
        grad_x_(Array<T>::random(threads, adds_ ? 0 : M_ * K_, 6)),
        residual_(Array<float>::random(threads, adds_ ? M_ * K_ : 0, 7)),
        grad_weight_(Array<float>::random(threads, N_ * K_, 8)),
        grad_bias_(Array<float>::random(threads, N_, 9)) {}

  void forward(const Context& ctx) const {
    kernels::linear_forward(ctx, M_, N_, K_, x_.data(), weight_.data(), bias_.data(), y_.data());
  }
  void backward_input(const Context& ctx) const {
    if (adds_) {
      kernels::linear_backward_input(ctx, M_, N_, K_, grad_y_.data(), weight_.data(),
                                     residual_.data(), /*accumulate=*/true);
    } else {
      kernels::linear_backward_input(ctx, M_, N_, K_, grad_y_.data(), weight_.data(),
                                     grad_x_.data(), /*accumulate=*/false);
    }
  }
  void backward_weight(const Context& ctx) const {
    kernels::linear_backward_weight(ctx, M_, N_, K_, grad_y_.data(), x_.data(), grad_weight_.data(),
                                    grad_bias_.data(), /*accumulate=*/false);
  }

  double forward_error(const Context& fast, const Context& reference) const {
    forward(fast);
    const std::vector<T> x = rows_of(x_, K_);
    std::vector<T> want(kSamples * N_);
    kernels::linear_forward(reference, kSamples, N_, K_, x.data(), weight_.data(), bias_.data(),
                            want.data());
    return worst_row<T>(y_, want, N_, M_, bound(K_));
  }

  double backward_input_error(const Context& fast, const Context& reference) const {
    if (adds_) return backward_input_error_of(fast, reference, residual_);
    return backward_input_error_of(fast, reference, grad_x_);
  }

  double backward_weight_error(const Context& fast, const Context& reference) const {
    backward_weight(fast);
    std::vector<T> grad_y(M_ * kSamples);
    for (std::size_t row = 0; row < M_; ++row) {
      for (std::size_t i = 0; i < kSamples; ++i) {
        grad_y[row * kSamples + i] = grad_y_.data()[row * N_ + sampled(i, N_)];
      }
    }
    std::vector<float> want(kSamples * K_);
    std::vector<float> want_bias(kSamples);
    kernels::linear_backward_weight(reference, M_, kSamples, K_, grad_y.data(), x_.data(),
                                    want.data(), want_bias.data(), /*accumulate=*/false);
    return std::max(worst_row<float>(grad_weight_, want, K_, N_, bound(M_)),
                    worst_row<float>(grad_bias_, want_bias, 1, N_, bound(M_)));
  }

  // The bits of y and of the gradient of the weights.
  std::vector<std::byte> results() const {
    const auto y = std::as_bytes(y_.span());
    const auto grad_weight = std::as_bytes(grad_weight_.span());
    std::vector<std::byte> bytes(y.begin(), y.end());
    bytes.insert(bytes.end(), grad_weight.begin(), grad_weight.end());
    return bytes;
  }

  double flops() const { return 2.0 * static_cast<double>(M_) * static_cast<double>(N_ * K_); }

 private:
  template <class Out>
  double backward_input_error_of(const Context& fast, const Context& reference,
                                 const Array<Out>& result) const {
    std::vector<Out> want = rows_of(result, K_);  // what it may add to
    backward_input(fast);
    const std::vector<T> grad_y = rows_of(grad_y_, N_);
    kernels::linear_backward_input(reference, kSamples, N_, K_, grad_y.data(), weight_.data(),
                                   want.data(), adds_);
    return worst_row<Out>(result, want, K_, M_, bound(N_));
  }

  template <class E>
  std::vector<E> rows_of(const Array<E>& matrix, std::size_t columns) const {
    std::vector<E> rows;
    for (std::size_t i = 0; i < kSamples; ++i) {
      const E* row = matrix.data() + sampled(i, M_) * columns;
      rows.insert(rows.end(), row, row + columns);
    }
    return rows;
  }

  template <class E>
  static double worst_row(const Array<E>& got, const std::vector<E>& want, std::size_t columns,
                          std::size_t rows, double allowed) {
    double worst = 0;
    for (std::size_t i = 0; i < kSamples; ++i) {
      const std::span<const E> row(got.data() + sampled(i, rows) * columns, columns);
      const std::span<const E> wanted(want.data() + i * columns, columns);
      worst = std::max(worst, worst_error<E>(row, wanted, allowed));
    }
    return worst;
  }

  std::size_t M_, N_, K_;
  bool adds_;
  Array<T> x_, weight_, grad_y_;
  Array<float> bias_;
  Array<T> y_, grad_x_;
  Array<float> residual_, grad_weight_, grad_bias_;
};

}  // namespace tandem::apps::bench
