// The loss of regression.
#pragma once

#include <cstddef>

#include "tandem/kernels/context.h"

namespace tandem::kernels {

// Returns the mean over `count` values of (prediction - target)^2, torch's MSELoss, in f64 and in a
// fixed order; NaN when count is 0.
//   predictions, targets: [count] f32.
//   grad: [count] f32, overwritten with grad_scale * d loss / d predictions; or null: not wanted.
//   It may be predictions.
double squared_error(const Context& ctx, std::size_t count, const float* predictions,
                     const float* targets, float grad_scale, float* grad);

}  // namespace tandem::kernels
