// The low-rank update of a linear layer (Hu et al. 2021, LoRA): with A [r, in] and B [out, r]
//
//   y += s · dropout(x)·Aᵀ·Bᵀ
//
// and, from the gradient g of y,
//
//   dB = s · gᵀ·(dropout(x)·Aᵀ)      dA = s · (g·B)ᵀ·dropout(x)      dx += dropout'(s · (g·B)·A)
//
// The base layer's weight gets no gradient product. Several modules that are one layer (query, key,
// value) have an update each: their A lie one behind the other, so one product computes all of
// x·Aᵀ. Their B are laid out as the blocks of one matrix [out_features, r of all], in scratch
// memory, with s in it. Nothing is kept from forward to backward: x·Aᵀ is computed again.
//
// Sums are those of the products (kernels/linear.h): their order depends on sizes only.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// Memory that the functions below need in Pass::low_rank_memory, for up to `rows` rows; 0 without
// an update.
std::size_t low_rank_bytes(const Linear& linear, std::size_t rows, Precision precision);

// In all of these `linear` has an update, and the rows of x and y are those of the pass or the
// first row of each of its sequences. T is float or bfloat16.

// x: [R, in_features].   y: [R, out_features], added to.
template <class T>
void low_rank_forward(const Pass& pass, const Linear& linear, std::span<const T> x, std::span<T> y);

// s · g·B, which both functions below need. kKept: the last call with this memory was the other
// function, for the same layer and grad_y.
enum class LowRankGradient { kCompute, kKept };

// Gradients of A and B, to `grads`.   x as in forward.   grad_y: [R, out_features].
template <class T>
void low_rank_backward_weight(const Pass& pass, const Linear& linear, std::span<const T> x,
                              std::span<const T> grad_y, const Gradients& grads,
                              LowRankGradient projected = LowRankGradient::kCompute);

// grad_x: [R, in_features], added to. (T, Out) as in kernels::linear_backward_input().
template <class T, class Out>
void low_rank_backward_input(const Pass& pass, const Linear& linear, std::span<const T> grad_y,
                             std::span<Out> grad_x,
                             LowRankGradient projected = LowRankGradient::kCompute);

}  // namespace tandem::nn
