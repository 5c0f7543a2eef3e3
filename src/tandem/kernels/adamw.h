// AdamW (Loshchilov and Hutter 2019) as torch.optim.AdamW computes it, one pass over a contiguous
// range of parameters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/undo_log.h"

namespace tandem::kernels {

// Where epsilon and the decay stand. kTorch: torch.optim.AdamW. kHuggingFace: transformers.AdamW
// (adamw_hf), which adds epsilon before the bias correction and decays after the step.
enum class AdamWForm { kTorch, kHuggingFace };

struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;  // t, counted from 1: the bias corrections are 1 - beta^t
  // Factor of every gradient: the mean over shards and the clipping, folded in.
  float grad_scale = 1;
  AdamWForm form = AdamWForm::kTorch;
};

//   g = grad_scale grad;   p *= 1 - lr weight_decay;   m += (1 - beta1)(g - m);   v = beta2 v + (1
//   - beta2) g^2 p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// kHuggingFace: p -= lr sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps);   p *= 1 - lr
// weight_decay
// Factors are computed in f64, elements in f32; an element's result does not depend on its place or
// on the threads.
//   grad: [count] f32.   parameters, exp_avg (m), exp_avg_sq (v): [count] f32, updated in place.
//   copy: [count] bfloat16, the rounded parameters before and after; or null.
// Elements that no gradient has touched (grad, m and v zero: most rows of an embedding table at
// first) are found as the pass goes and not written, but for the decay: the same bits, less
// traffic.
// Throws InvalidArgument if step < 1.
void adamw(const Context& ctx, std::size_t count, const AdamWStep& step, const float* grad,
           float* parameters, float* exp_avg, float* exp_avg_sq, bfloat16* copy);

// The same on the calling thread, for a caller that cuts its own chunks.
//   undo: keeps parameters, exp_avg and exp_avg_sq before they are overwritten; or null.
void adamw(const KernelSet& kernels, std::size_t count, const AdamWStep& step, const float* grad,
           float* parameters, float* exp_avg, float* exp_avg_sq, bfloat16* copy,
           const UndoLog* undo = nullptr);

}  // namespace tandem::kernels
