// Stochastic gradient descent and Adagrad (Duchi, Hazan and Singer 2011) as torch.optim.SGD and
// torch.optim.Adagrad compute them, one pass over a contiguous range of parameters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/undo_log.h"

namespace tandem::kernels {

struct SgdStep {
  double lr = 0;
  double weight_decay = 0;  // added to the gradient (L2), not decoupled
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  std::int64_t step = 1;  // counted from 1: the first one begins the momentum
  float grad_scale = 1;   // factor of every gradient
};

//   g = grad_scale grad + weight_decay p;   b = g in step 1, else momentum b + (1 - dampening) g
//   p -= lr (nesterov: g + momentum b; else b)
// Without momentum p -= lr g, and `buffer` may be null.
// Factors in f64, elements in f32; an element's result depends neither on its place nor on threads.
//   grad: [count] f32.   parameters, buffer (b): [count] f32, updated in place.
//   copy: [count] bfloat16, the rounded parameters after; or null.
// Throws InvalidArgument if step < 1, or if there is momentum and no buffer.
void sgd(const Context& ctx, std::size_t count, const SgdStep& step, const float* grad,
         float* parameters, float* buffer, bfloat16* copy);

// The same on the calling thread, for a caller that cuts its own chunks.
//   undo: keeps parameters and buffer before they are overwritten; or null.
void sgd(const KernelSet& kernels, std::size_t count, const SgdStep& step, const float* grad,
         float* parameters, float* buffer, bfloat16* copy, const UndoLog* undo = nullptr);

struct AdagradStep {
  double lr = 0;
  double lr_decay = 0;  // the rate of step t is lr / (1 + (t - 1) lr_decay)
  double weight_decay = 0;
  double eps = 1e-10;
  double initial_sum = 0;
  std::int64_t step = 1;  // t, counted from 1: the first one begins the sum
  float grad_scale = 1;
};

//   g = grad_scale grad + weight_decay p;   s = (initial_sum in step 1, else s) + g^2
//   p -= lr g / (sqrt(s) + eps)
// As sgd(); sum (s): [count] f32, updated in place.
void adagrad(const Context& ctx, std::size_t count, const AdagradStep& step, const float* grad,
             float* parameters, float* sum, bfloat16* copy);

// The same on the calling thread; `undo` as in sgd().
void adagrad(const KernelSet& kernels, std::size_t count, const AdagradStep& step,
             const float* grad, float* parameters, float* sum, bfloat16* copy,
             const UndoLog* undo = nullptr);

}  // namespace tandem::kernels
