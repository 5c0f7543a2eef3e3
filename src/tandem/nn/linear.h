// A linear layer y = x·Wᵀ + b whose parameters lie in the arenas, with its low-rank update if it
// has one (low_rank.h).
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "tandem/core/profile.h"
#include "tandem/kernels/linear.h"
#include "tandem/kernels/reduce.h"
#include "tandem/nn/int8_linear.h"
#include "tandem/nn/low_rank.h"
#include "tandem/nn/packed_linear.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// The product of linear_forward() on 8-bit integers.
template <class T>
void int8_linear_forward(const Pass& pass, const Int8Linear& int8, const Linear& linear,
                         std::size_t rows, const T* x, T* y) {
  const float* bias = pass.weights.vector(linear.bias);
  if (int8.input) {
    kernels::int8_linear_forward<T>(pass.context, rows, int8.weight, *int8.input, x, bias, y);
  } else {
    kernels::int8_linear_forward_dynamic<T>(pass.context, rows, int8.weight, x, bias, y);
  }
}

// In all of these the number of rows is that of x or grad_y: a head may have fewer than the pass.

// y = x·Wᵀ + b, overwritten, without the low-rank update.
template <class T>
void base_linear_forward(const Pass& pass, const Linear& linear, std::span<const T> x,
                         std::span<T> y) {
  const StageTimer timer(pass.context.profile, linear.name, "forward");
  const Weights& weights = pass.weights;
  const std::size_t rows = x.size() / linear.in_features;
  if constexpr (std::is_same_v<T, float>) {
    if (weights.observer != nullptr) weights.observer->saw(linear, rows, x.data());
  }
  if (const Int8Linear* int8 = int8_at(weights, linear.weight)) {
    int8_linear_forward<T>(pass, *int8, linear, rows, x.data(), y.data());
    return;
  }
  const T* const weight = weights.matrix<T>(linear.weight);
  const float* const bias = weights.vector(linear.bias);
  if (linear.transposed) {
    kernels::transposed_linear_forward<T>(pass.context, rows, linear.out_features,
                                          linear.in_features, x.data(), weight, bias, y.data());
    return;
  }
  if (weights.packed != nullptr) {
    if (const auto* packed = weights.packed->use(pass.context, linear, weight)) {
      kernels::linear_forward<T>(pass.context, rows, *packed, x.data(), bias, y.data());
      return;
    }
  }
  kernels::linear_forward<T>(pass.context, rows, linear.out_features, linear.in_features, x.data(),
                             weight, bias, y.data());
}

// y = x·Wᵀ + b, overwritten.   x: [R, in_features] T.   y: [R, out_features] T. Weights::int8
// applies, with T = float also Weights::observer.
template <class T>
void linear_forward(const Pass& pass, const Linear& linear, std::span<const T> x, std::span<T> y) {
  base_linear_forward<T>(pass, linear, x, y);
  if (!linear.low_rank.empty()) low_rank_forward<T>(pass, linear, x, y);
}

// Gradients of W and b, or of their low-rank update, which go to `grads`; of a frozen layer without
// one there are none. `projected` as in low_rank_backward_weight().
//   x: [R, in_features] T as in forward.   grad_y: [R, out_features] T.
template <class T>
void linear_backward_weight(const Pass& pass, const Linear& linear, std::span<const T> x,
                            std::span<const T> grad_y, const Gradients& grads,
                            LowRankGradient projected = LowRankGradient::kCompute) {
  if (!linear.low_rank.empty())
    low_rank_backward_weight<T>(pass, linear, x, grad_y, grads, projected);
  if (grads.at(linear.weight) == nullptr) return;
  const StageTimer timer(pass.context.profile, linear.name, "dW");
  const std::size_t rows = grad_y.size() / linear.out_features;
  if (linear.transposed) {
    kernels::linear_backward_weight<T>(pass.context, rows, linear.in_features, linear.out_features,
                                       x.data(), grad_y.data(), grads.at(linear.weight),
                                       /*grad_bias=*/nullptr, grads.accumulate);
    kernels::column_sums<T>(pass.context, rows, linear.out_features, grad_y.data(),
                            grads.at(linear.bias), grads.accumulate);
    return;
  }
  kernels::linear_backward_weight<T>(pass.context, rows, linear.out_features, linear.in_features,
                                     grad_y.data(), x.data(), grads.at(linear.weight),
                                     grads.at(linear.bias), grads.accumulate);
}

// grad_x = grad_y·W, or += when accumulate, without the low-rank update.
template <class T, class Out>
void base_linear_backward_input(const Pass& pass, const Linear& linear, std::span<const T> grad_y,
                                std::span<Out> grad_x, bool accumulate) {
  const StageTimer timer(pass.context.profile, linear.name, "dX");
  const auto product = linear.transposed ? kernels::transposed_linear_backward_input<T, Out>
                                         : kernels::linear_backward_input<T, Out>;
  product(pass.context, grad_y.size() / linear.out_features, linear.out_features,
          linear.in_features, grad_y.data(), pass.weights.matrix<T>(linear.weight), grad_x.data(),
          accumulate);
}

// grad_x = grad_y·W, or += when accumulate (the residual's gradient is already there). `projected`
// as in low_rank_backward_input().
//   grad_y: [R, out_features] T.   grad_x: [R, in_features] T or f32.
template <class T, class Out>
void linear_backward_input(const Pass& pass, const Linear& linear, std::span<const T> grad_y,
                           std::span<Out> grad_x, bool accumulate,
                           LowRankGradient projected = LowRankGradient::kCompute) {
  base_linear_backward_input<T, Out>(pass, linear, grad_y, grad_x, accumulate);
  if (!linear.low_rank.empty())
    low_rank_backward_input<T, Out>(pass, linear, grad_y, grad_x, projected);
}

// Both.
template <class T, class Out>
void linear_backward(const Pass& pass, const Linear& linear, std::span<const T> x,
                     std::span<const T> grad_y, std::span<Out> grad_x, bool accumulate_grad_x,
                     const Gradients& grads) {
  linear_backward_weight<T>(pass, linear, x, grad_y, grads);
  linear_backward_input<T, Out>(pass, linear, grad_y, grad_x, accumulate_grad_x,
                                LowRankGradient::kKept);
}

}  // namespace tandem::nn
