// The matrix products of a linear layer y = x W^T + b, as torch.nn.Linear keeps it: weight [N, K] =
// [out_features, in_features].
//
// T (float or bfloat16) is the storage of the operands; sums are f32 in an order that depends on M,
// N and K only. All matrices are row-major and dense. Outputs must not overlap inputs. Parallel
// over ctx.threads; nothing is allocated once shapes repeat.
#pragma once

#include <cstddef>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/packed_weight.h"

namespace tandem::kernels {

// y = x weight^T + bias, overwritten.   x: [M, K] T.   weight: [N, K] T.   bias: [N] f32 or null.
// y: [M, N] T.
template <class T>
void linear_forward(const Context& ctx, std::size_t M, std::size_t N, std::size_t K, const T* x,
                    const T* weight, const float* bias, T* y);

// The same with y in f32, whatever the operands are.
template <class T>
void linear_forward_f32(const Context& ctx, std::size_t M, std::size_t N, std::size_t K, const T* x,
                        const T* weight, const float* bias, float* y);

// The bits of linear_forward().   x: [M, weight.in_features()] T.   y: [M, weight.out_features()]
// T.
template <class T>
void linear_forward(const Context& ctx, std::size_t M, const PackedWeight<T>& weight, const T* x,
                    const float* bias, T* y);

// The bits of linear_forward_f32().
template <class T>
void linear_forward_f32(const Context& ctx, std::size_t M, const PackedWeight<T>& weight,
                        const T* x, const float* bias, float* y);

// grad_input = grad_out weight, or += when `accumulate`.   grad_out: [M, N] T.   weight: [N, K] T.
// grad_input: [M, K] Out. (T, Out) is (float, float), (bfloat16, bfloat16) or (bfloat16, float).
template <class T, class Out>
void linear_backward_input(const Context& ctx, std::size_t M, std::size_t N, std::size_t K,
                           const T* grad_out, const T* weight, Out* grad_input, bool accumulate);

// The same products with a weight that is stored transposed, [K, N] T: GPT-2's Conv1D. The gradient
// of such a weight is linear_backward_weight() with x and grad_out exchanged.
template <class T>
void transposed_linear_forward(const Context& ctx, std::size_t M, std::size_t N, std::size_t K,
                               const T* x, const T* weight, const float* bias, T* y);
template <class T, class Out>
void transposed_linear_backward_input(const Context& ctx, std::size_t M, std::size_t N,
                                      std::size_t K, const T* grad_out, const T* weight,
                                      Out* grad_input, bool accumulate);

// grad_weight = grad_out^T x and grad_bias = column sums of grad_out, or += when `accumulate`; all
// M rows are summed in f32.
//   grad_out: [M, N] T.   x: [M, K] T.   grad_weight: [N, K] f32.   grad_bias: [N] f32 or null.
template <class T>
void linear_backward_weight(const Context& ctx, std::size_t M, std::size_t N, std::size_t K,
                            const T* grad_out, const T* x, float* grad_weight, float* grad_bias,
                            bool accumulate);

}  // namespace tandem::kernels
