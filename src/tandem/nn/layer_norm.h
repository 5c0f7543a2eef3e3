// y = LayerNorm(dropout(x) + residual), the joint of a transformer layer (Ba et al. 2016), or
// RMSNorm of it (Zhang and Sennrich 2019).
#pragma once

#include <cstddef>
#include <span>

#include "tandem/core/profile.h"
#include "tandem/kernels/layer_norm.h"
#include "tandem/nn/hidden.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// Values that LayerNorm saves for its backward.
struct LayerNormActivations {
  std::span<float> sum;   // [R, H] its input: dropout(x) + residual
  std::span<float> mean;  // [R]; empty: RMSNorm
  std::span<float> rstd;  // [R] 1/√(variance + ε)

  // memory: an Arena or a Region.
  template <class Memory>
  static LayerNormActivations allocate(Memory& memory, std::size_t rows, std::size_t hidden_size) {
    return {memory.template allocate<float>(rows * hidden_size),
            memory.template allocate<float>(rows), memory.template allocate<float>(rows)};
  }
};

// x: [R, H] T, or empty: the sum is the residual.   residual: [R, H] f32, may be y.residual or
// saved.sum.   y: overwritten.
template <class T>
void dropout_add_layer_norm_forward(const Pass& pass, const LayerNormParameters& parameters,
                                    double eps, const kernels::Dropout& dropout,
                                    std::span<const T> x, std::span<const float> residual,
                                    const LayerNormActivations& saved, const Hidden<T>& y) {
  const kernels::LayerNormForward<T> args = {.x = x.data(),
                                             .residual = residual.data(),
                                             .gamma = pass.weights.vector(parameters.weight),
                                             .beta = pass.weights.vector(parameters.bias),
                                             .eps = static_cast<float>(eps),
                                             .y = y.residual.data(),
                                             .y_copy = y.copy(),
                                             .sum = saved.sum.data(),
                                             .mean = saved.mean.data(),
                                             .rstd = saved.rstd.data()};
  const StageTimer timer(pass.context.profile, "layer norm", "forward");
  const std::size_t size = x.empty() ? residual.size() : x.size();
  kernels::dropout_add_layer_norm_forward<T>(pass.context, pass.sequences, size / pass.rows(),
                                             dropout, args);
}

// y = LayerNorm(saved.sum), which stays: the row has another reader.
template <class T>
void layer_norm_forward(const Pass& pass, const LayerNormParameters& parameters, double eps,
                        const LayerNormActivations& saved, const Hidden<T>& y) {
  dropout_add_layer_norm_forward<T>(pass, parameters, eps, {}, {}, saved.sum, saved, y);
}

// y of a forward pass, the same bits, from what it saved. `residual`: y.residual is written, too.
template <class T>
void layer_norm_recompute(const Pass& pass, const LayerNormParameters& parameters,
                          const LayerNormActivations& saved, bool residual, const Hidden<T>& y) {
  const StageTimer timer(pass.context.profile, "layer norm", "recompute");
  if (y.copy() == nullptr) residual = true;  // one matrix is both
  kernels::layer_norm_recompute<T>(pass.context, pass.sequences, saved.sum.size() / pass.rows(),
                                   {.sum = saved.sum.data(),
                                    .mean = saved.mean.data(),
                                    .rstd = saved.rstd.data(),
                                    .gamma = pass.weights.vector(parameters.weight),
                                    .beta = pass.weights.vector(parameters.bias),
                                    .y = residual ? y.residual.data() : nullptr,
                                    .y_copy = y.copy()});
}

// grad_y: [R, H] f32.   grad: [R, H] f32, on return the gradient of the norm's input, and of the
// residual in it. If grad_y is other memory, `grad` has the gradient of the input's other reader on
// entry, and it is added.   grad_x: [R, H] T, overwritten: the gradient of x; or empty.
template <class T>
void layer_norm_backward(const Pass& pass, const LayerNormParameters& parameters,
                         const kernels::Dropout& dropout, const LayerNormActivations& saved,
                         std::span<const float> grad_y, std::span<float> grad, std::span<T> grad_x,
                         const Gradients& grads) {
  const float* const other = grad_y.data() == grad.data() ? nullptr : grad.data();
  const kernels::LayerNormBackward<T> args = {.grad_y = grad_y.data(),
                                              .sum = saved.sum.data(),
                                              .mean = saved.mean.data(),
                                              .rstd = saved.rstd.data(),
                                              .gamma = pass.weights.vector(parameters.weight),
                                              .grad_beside = other,
                                              .grad_sum = grad.data(),
                                              .grad_x = grad_x.data(),
                                              .grad_gamma = grads.at(parameters.weight),
                                              .grad_beta = grads.at(parameters.bias),
                                              .accumulate = grads.accumulate};
  const StageTimer timer(pass.context.profile, "layer norm", "backward");
  kernels::dropout_add_layer_norm_backward<T>(pass.context, pass.sequences,
                                              grad.size() / pass.rows(), dropout, args);
}

// grad: [R, H] f32, the gradient of y on entry and of the residual on return.   grad_x: [R, H] T,
// overwritten.
template <class T>
void dropout_add_layer_norm_backward(const Pass& pass, const LayerNormParameters& parameters,
                                     const kernels::Dropout& dropout,
                                     const LayerNormActivations& saved, std::span<float> grad,
                                     std::span<T> grad_x, const Gradients& grads) {
  layer_norm_backward<T>(pass, parameters, dropout, saved, grad, grad, grad_x, grads);
}

}  // namespace tandem::nn
