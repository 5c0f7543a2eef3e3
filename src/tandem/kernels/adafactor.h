// Adafactor (Shazeer and Stern 2018) as transformers.Adafactor computes it with scale_parameter and
// relative_step off, which is how Hugging Face's Trainer runs it. There is one plain version.
#pragma once

#include <cstddef>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"

namespace tandem::kernels {

struct AdafactorStep {
  double lr = 0;
  double beta2 = 0;  // beta2 of this step: 1 - t^decay_rate
  double clip_threshold = 1;
  double weight_decay = 0;
  double eps = 1e-30;
  float grad_scale = 1;  // factor of every gradient
};

// One parameter of [rows, columns], whose second moment is kept as its row and column means:
//   g = grad_scale grad;   row = beta2 row + (1 - beta2) mean over columns of (g^2 + eps); col
//   likewise u = g / sqrt(row/mean(row)) / sqrt(col);   u /= max(1, rms(u)/clip_threshold)
//   p = p (1 - lr weight_decay) - lr u
//   grad: f32.   parameters, row_means [rows], column_means [columns]: f32, updated in place.
//   copy: bfloat16, the rounded parameters after; or null.
// Sums are taken over fixed blocks of rows in index order: the bits do not depend on the threads.
// Uses shared scratch of the context.
void adafactor_matrix(const Context& ctx, std::size_t rows, std::size_t columns,
                      const AdafactorStep& step, const float* grad, float* parameters,
                      float* row_means, float* column_means, bfloat16* copy);

// A parameter of one dimension keeps the whole second moment v: [count].
//   v = beta2 v + (1 - beta2)(g^2 + eps);   u = g / sqrt(v); the rest as above
void adafactor_vector(const Context& ctx, std::size_t count, const AdafactorStep& step,
                      const float* grad, float* parameters, float* second_moment, bfloat16* copy);

}  // namespace tandem::kernels
