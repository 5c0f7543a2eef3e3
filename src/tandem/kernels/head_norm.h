// RMSNorm over the columns of each head, in front of rotary positions (Qwen3's q_norm and k_norm).
// All heads share the weight.
#pragma once

#include <cstddef>

#include "tandem/kernels/context.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

// Head i of row r is at r ld + i head_dim of a matrix.
struct HeadNormShape {
  std::size_t heads = 0, head_dim = 0;
  std::size_t ld_x = 0, ld_y = 0;  // elements between rows
};

// y = x / sqrt(mean of the head's squares + eps) · gamma.
//   x: T (float or bfloat16), rows ld_x apart.   y: T, rows ld_y apart, overwritten; may be x.
//   gamma: [head_dim].   rstd: [rows, heads] f32, saved.   Sums in f32. Throws InvalidArgument for
//   bad sequences or heads that do not fit in their rows.
template <class T>
void head_norm_forward(const Context& ctx, const Sequences& sequences, const HeadNormShape& shape,
                       const float* gamma, float eps, const T* x, T* y, float* rstd);

// grad: T, rows ld_y apart: the gradient of y on entry and of x on return.   grad_gamma:
// [head_dim], overwritten or added to, summed over chunks of rows in index order; or null: not
// wanted.   x, rstd: as in forward.
template <class T>
void head_norm_backward(const Context& ctx, const Sequences& sequences, const HeadNormShape& shape,
                        const float* gamma, const T* x, const float* rstd, T* grad,
                        float* grad_gamma, bool accumulate);

}  // namespace tandem::kernels
