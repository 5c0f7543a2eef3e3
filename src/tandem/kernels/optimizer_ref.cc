// The reference AdamW, in the f32 steps that adamw.h spells out.
#include <cmath>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

void adamw(const AdamWFactors& f, std::size_t count, const float* grad, float* parameters,
           float* exp_avg, float* exp_avg_sq, bfloat16* copy) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = grad[i] * f.grad_scale;
    exp_avg[i] = std::fma(f.one_minus_beta1, g - exp_avg[i], exp_avg[i]);
    exp_avg_sq[i] = std::fma(f.one_minus_beta2 * g, g, f.beta2 * exp_avg_sq[i]);
    const float denominator = std::fma(std::sqrt(exp_avg_sq[i]), f.inverse_sqrt_correction2, f.eps);
    parameters[i] = parameters[i] * f.decay - f.step_size * (exp_avg[i] / denominator);
    if (copy != nullptr) copy[i] = to_bfloat16(parameters[i]);
  }
}

}  // namespace

const OptimizerKernels kOptimizerReference = {.adamw = adamw};

}  // namespace tandem::kernels
