// A linear layer y = x·Wᵀ + b whose parameters lie in the arenas.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/kernels/linear.h"
#include "tandem/nn/int8_linear.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// The product of linear_forward() on 8-bit integers. Throws InvalidArgument when the layer has
// other sizes than `int8`.
inline void int8_linear_forward(const Pass& pass, const Int8Linear& int8,
                                const LinearParameters& parameters, std::size_t out_features,
                                std::size_t in_features, const float* x, float* y) {
  const kernels::Int8Weight& weight = int8.weight;
  if (weight.out_features() != out_features || weight.in_features() != in_features) {
    raise<InvalidArgument>("the int8 weight at {} is {} x {}; the layer is {} x {}",
                           parameters.weight, weight.out_features(), weight.in_features(),
                           out_features, in_features);
  }
  const float* bias = pass.weights.vector(parameters.bias);
  if (int8.input) {
    kernels::int8_linear_forward(pass.context, pass.rows(), weight, *int8.input, x, bias, y);
  } else {
    kernels::int8_linear_forward_dynamic(pass.context, pass.rows(), weight, x, bias, y);
  }
}

// y = x·Wᵀ + b, overwritten.   x: [R, in_features] T.   y: [R, out_features] T.   name: of the
// stage, for a profile. With T = float as Weights::int8 and Weights::observer say.
template <class T>
void linear_forward(const Pass& pass, std::string_view name, const LinearParameters& parameters,
                    std::size_t out_features, std::size_t in_features, std::span<const T> x,
                    std::span<T> y) {
  const StageTimer timer(pass.context.profile, name, "forward");
  const Weights& weights = pass.weights;
  if constexpr (std::is_same_v<T, float>) {
    if (weights.observer != nullptr) {
      weights.observer->saw(parameters.weight, pass.rows(), in_features, x.data());
    }
    if (const Int8Linear* int8 = int8_at(weights, parameters.weight)) {
      int8_linear_forward(pass, *int8, parameters, out_features, in_features, x.data(), y.data());
      return;
    }
  }
  kernels::linear_forward<T>(pass.context, pass.rows(), out_features, in_features, x.data(),
                             weights.matrix<T>(parameters.weight), weights.vector(parameters.bias),
                             y.data());
}

// Gradients of W and b, which go to `grads`.
//   x: [R, in_features] T as in forward.   grad_y: [R, out_features] T.
template <class T>
void linear_backward_weight(const Pass& pass, std::string_view name,
                            const LinearParameters& parameters, std::size_t out_features,
                            std::size_t in_features, std::span<const T> x,
                            std::span<const T> grad_y, const Gradients& grads) {
  const StageTimer timer(pass.context.profile, name, "dW");
  kernels::linear_backward_weight<T>(pass.context, pass.rows(), out_features, in_features,
                                     grad_y.data(), x.data(), grads.at(parameters.weight),
                                     grads.at(parameters.bias), grads.accumulate);
}

// grad_x = grad_y·W, or += when accumulate (the residual's gradient is already there).
//   grad_y: [R, out_features] T.   grad_x: [R, in_features] T or f32.
template <class T, class Out>
void linear_backward_input(const Pass& pass, std::string_view name,
                           const LinearParameters& parameters, std::size_t out_features,
                           std::size_t in_features, std::span<const T> grad_y,
                           std::span<Out> grad_x, bool accumulate) {
  const StageTimer timer(pass.context.profile, name, "dX");
  kernels::linear_backward_input<T, Out>(pass.context, pass.rows(), out_features, in_features,
                                         grad_y.data(), pass.weights.matrix<T>(parameters.weight),
                                         grad_x.data(), accumulate);
}

// Both.
template <class T, class Out>
void linear_backward(const Pass& pass, std::string_view name, const LinearParameters& parameters,
                     std::size_t out_features, std::size_t in_features, std::span<const T> x,
                     std::span<const T> grad_y, std::span<Out> grad_x, bool accumulate_grad_x,
                     const Gradients& grads) {
  linear_backward_weight<T>(pass, name, parameters, out_features, in_features, x, grad_y, grads);
  linear_backward_input<T, Out>(pass, name, parameters, out_features, in_features, grad_y, grad_x,
                                accumulate_grad_x);
}

}  // namespace tandem::nn
