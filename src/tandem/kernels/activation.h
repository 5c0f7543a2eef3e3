// The activations of feed-forward layers and of the heads of sequences. Nothing but the
// pre-activation is kept for backward.
#pragma once

#include <cstddef>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"

namespace tandem::kernels {

// kGelu: x Phi(x) with the exact error function (HF "gelu").   kRelu: max(x, 0).
// kGeluNew: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (HF "gelu_new", "gelu_pytorch_tanh").
// kTanh: tanh(x), BERT's pooler.   kSilu: x / (1 + e^-x) (HF "silu", "swish").
enum class Activation { kGelu, kGeluNew, kRelu, kTanh, kSilu };

// y = f(x).   x, y: [count] T (float or bfloat16); y may be x, but backward needs x.
template <class T>
void activation_forward(const Context& ctx, Activation activation, std::size_t count, const T* x,
                        T* y);

// grad_x = grad_y f'(x).   x: the pre-activation.   grad_x may be grad_y.   y: [count] T, f(x) once
// more, the bits of forward, almost for free; or null: not wanted.
template <class T>
void activation_backward(const Context& ctx, Activation activation, std::size_t count, const T* x,
                         const T* grad_y, T* grad_x, T* y = nullptr);

// y = f(a) gate for the halves (a, gate) of each row of x, a first: the gated feed-forward layer
// (Shazeer 2020, "GLU Variants").   x: [rows, 2 columns] T.   y: [rows, columns] T, overwritten.
// Both factors and their product are f32.
template <class T>
void gated_activation_forward(const Context& ctx, Activation activation, std::size_t rows,
                              std::size_t columns, const T* x, T* y);

// grad_x = (grad_y gate f'(a), grad_y f(a)), overwritten.   x, grad_x: [rows, 2 columns] T; grad_x
// may be x.   grad_y: [rows, columns] T.   y: [rows, columns] T, the bits of forward once more; or
// null: not wanted. It may be grad_y.
template <class T>
void gated_activation_backward(const Context& ctx, Activation activation, std::size_t rows,
                               std::size_t columns, const T* x, const T* grad_y, T* grad_x,
                               T* y = nullptr);

}  // namespace tandem::kernels
