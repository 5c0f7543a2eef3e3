// The forward product of a linear layer on 8-bit integers, to be verified and timed.
#pragma once

#include <cstring>
#include <limits>
#include <vector>

#include "apps/bench/products.h"
#include "tandem/kernels/int8.h"

namespace tandem::apps::bench {

class Int8Product {
 public:
  // dynamic: each row in a range of its own.
  Int8Product(const Context& ctx, std::size_t M, const Layer& layer, bool dynamic)
      : M_(M),
        N_(layer.N),
        K_(layer.K),
        dynamic_(dynamic),
        x_(Array<float>::random(ctx.threads, M_ * K_, 1)),
        weight_(random_weight(ctx, layer)),
        bias_(Array<float>::random(ctx.threads, N_, 4)),
        y_(Array<float>::random(ctx.threads, M_ * N_, 5)) {}

  void forward(const Context& ctx) const { forward(ctx, M_, x_.data(), y_.data()); }

  // 0 when sampled rows have the reference's bits, else infinite: nothing explains a difference.
  double error(const Context& fast, const Context& reference) const {
    forward(fast);
    std::vector<float> want(N_);
    for (std::size_t i = 0; i < kSamples; ++i) {
      const std::size_t row = sampled(i, M_);
      forward(reference, 1, x_.data() + row * K_, want.data());
      if (std::memcmp(want.data(), y_.data() + row * N_, N_ * sizeof(float)) != 0) {
        return std::numeric_limits<double>::infinity();
      }
    }
    return 0;
  }

  double flops() const { return 2.0 * static_cast<double>(M_) * static_cast<double>(N_ * K_); }

 private:
  static kernels::Int8Weight random_weight(const Context& ctx, const Layer& layer) {
    std::vector<std::int8_t> weight(layer.N * layer.K);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] = static_cast<std::int8_t>(kernels::splitmix64(i) & 255u);
    }
    const std::vector<float> scale(layer.N, 1.0f / 128);
    return kernels::Int8Weight::pack(ctx, layer.N, layer.K, weight, scale);
  }

  void forward(const Context& ctx, std::size_t rows, const float* x, float* y) const {
    if (dynamic_) {
      kernels::int8_linear_forward_dynamic(ctx, rows, weight_, x, bias_.data(), y);
    } else {
      kernels::int8_linear_forward(ctx, rows, weight_, kernels::int8_range(-1, 1), x, bias_.data(),
                                   y);
    }
  }

  std::size_t M_, N_, K_;
  bool dynamic_;
  Array<float> x_;
  kernels::Int8Weight weight_;
  Array<float> bias_, y_;
};

}  // namespace tandem::apps::bench
