// A linear layer y = x·Wᵀ + b whose parameters lie in the arenas.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/kernels/linear.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// y = x·Wᵀ + b, overwritten.   x: [R, in_features] T.   y: [R, out_features] T.
template <class T>
void linear_forward(const Pass& pass, const LinearParameters& parameters, std::size_t out_features,
                    std::size_t in_features, std::span<const T> x, std::span<T> y) {
  kernels::linear_forward<T>(pass.context, pass.rows(), out_features, in_features, x.data(),
                             pass.weights.matrix<T>(parameters.weight),
                             pass.weights.vector(parameters.bias), y.data());
}

// Gradients of W and b go to `grads`.   x: [R, in_features] T as in forward.   grad_y: [R,
// out_features] T.
template <class T>
void linear_backward_weight(const Pass& pass, const LinearParameters& parameters,
                            std::size_t out_features, std::size_t in_features, std::span<const T> x,
                            std::span<const T> grad_y, const Gradients& grads) {
  kernels::linear_backward_weight<T>(pass.context, pass.rows(), out_features, in_features,
                                     grad_y.data(), x.data(), grads.at(parameters.weight),
                                     grads.at(parameters.bias), grads.accumulate);
}

// grad_x = grad_y·W, or += when accumulate_grad_x (the
// residual's gradient is already there).
//   grad_x: [R, in_features] T or f32.
template <class T, class Out>
void linear_backward_input(const Pass& pass, const LinearParameters& parameters,
                           std::size_t out_features, std::size_t in_features,
                           std::span<const T> grad_y, std::span<Out> grad_x,
                           bool accumulate_grad_x) {
  kernels::linear_backward_input<T, Out>(pass.context, pass.rows(), out_features, in_features,
                                         grad_y.data(), pass.weights.matrix<T>(parameters.weight),
                                         grad_x.data(), accumulate_grad_x);
}

// Both.
template <class T, class Out>
void linear_backward(const Pass& pass, const LinearParameters& parameters, std::size_t out_features,
                     std::size_t in_features, std::span<const T> x, std::span<const T> grad_y,
                     std::span<Out> grad_x, bool accumulate_grad_x, const Gradients& grads) {
  linear_backward_weight<T>(pass, parameters, out_features, in_features, x, grad_y, grads);
  linear_backward_input<T, Out>(pass, parameters, out_features, in_features, grad_y, grad_x,
                                accumulate_grad_x);
}

}  // namespace tandem::nn
