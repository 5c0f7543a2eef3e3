// Layer normalisation with what surrounds it in a transformer block: y = LayerNorm(dropout(x) +
// residual) (Ba et al. 2016). The bias of the product that made x has been added by the product.
//
// Without a mean (null) the norm is RMSNorm (Zhang and Sennrich 2019): the mean counts as 0
// everywhere, so rstd is 1 / sqrt(mean of the squares + eps).
#pragma once

#include <cstddef>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

// rows = sequences.rows(); every matrix is [rows, H] row-major; statistics are f32, the variance is
// the mean squared deviation.
template <class T>
struct LayerNormForward {
  const T* x = nullptr;             // [rows, H] T or null: none, the sum is the residual
  const float* residual = nullptr;  // [rows, H] f32 or null: none. May be y or sum.
  const float* gamma = nullptr;     // [H]
  const float* beta = nullptr;      // [H] or null: a norm without bias
  float eps = 1e-12f;
  float* y = nullptr;     // [rows, H] f32, overwritten; or null: not wanted
  T* y_copy = nullptr;    // [rows, H] y rounded to T, the next product's operand; or null
  float* sum = nullptr;   // [rows, H] f32, saved: dropout(x) + residual. May be x (T = float)
  float* mean = nullptr;  // [rows] f32, saved; or null: RMSNorm
  float* rstd = nullptr;  // [rows] f32, saved: 1 / sqrt(variance + eps)
};

// T: float or bfloat16. Throws InvalidArgument for bad sequences or dropout.
template <class T>
void dropout_add_layer_norm_forward(const Context& ctx, const Sequences& sequences, std::size_t H,
                                    const Dropout& dropout, const LayerNormForward<T>& args);

// y of a forward pass from what that saved: the same bits. A training pass that does not keep y
// calls it in backward.
template <class T>
struct LayerNormRecompute {
  const float* sum = nullptr;    // [rows, H] saved by forward
  const float* mean = nullptr;   // saved by forward, or null
  const float* rstd = nullptr;   // saved by forward
  const float* gamma = nullptr;  // [H]
  const float* beta = nullptr;   // [H] or null
  float* y = nullptr;            // [rows, H] f32, overwritten; or null: not wanted
  T* y_copy = nullptr;           // [rows, H] y rounded to T; or null: not wanted
};

template <class T>
void layer_norm_recompute(const Context& ctx, const Sequences& sequences, std::size_t H,
                          const LayerNormRecompute<T>& args);

template <class T>
struct LayerNormBackward {
  const float* grad_y = nullptr;  // [rows, H] f32
  const float* sum = nullptr;     // saved by forward
  const float* mean = nullptr;    // saved by forward, or null
  const float* rstd = nullptr;    // saved by forward
  const float* gamma = nullptr;   // [H]
  // [rows, H] f32: the gradient of the sum's other uses, besides the norm (a layer that is normed
  // before its products); added to grad_sum. Or null: none.
  const float* grad_beside = nullptr;
  float* grad_sum = nullptr;  // [rows, H] f32, overwritten: the gradient of the sum, so of the
                              // residual. May be grad_y or grad_beside
  // [rows, H] T, overwritten: grad_sum through the dropout; or null: not wanted.
  T* grad_x = nullptr;
  float* grad_gamma = nullptr;  // [H] f32 or null: not wanted
  float* grad_beta = nullptr;   // [H] f32 or null: not wanted
  // Whether to add to grad_gamma and grad_beta. Their sums go over chunks of rows in index order.
  bool accumulate = false;
};

// `dropout` as in forward.
template <class T>
void dropout_add_layer_norm_backward(const Context& ctx, const Sequences& sequences, std::size_t H,
                                     const Dropout& dropout, const LayerNormBackward<T>& args);

}  // namespace tandem::kernels
