// The reference optimizers, in the f32 steps that adamw.h and gradient_descent.h spell out.
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
    parameters[i] =
        (parameters[i] * f.decay - f.step_size * (exp_avg[i] / denominator)) * f.decay_after;
    if (copy != nullptr) copy[i] = to_bfloat16(parameters[i]);
  }
}

void sgd(const SgdFactors& f, std::size_t count, const float* grad, float* parameters,
         float* buffer, bfloat16* copy) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = std::fma(f.weight_decay, parameters[i], grad[i] * f.grad_scale);
    float update = g;
    if (buffer != nullptr) {
      buffer[i] = std::fma(f.add, g, f.keep * buffer[i]);
      update = f.nesterov ? std::fma(f.ahead, buffer[i], g) : buffer[i];
    }
    parameters[i] = std::fma(-f.lr, update, parameters[i]);
    if (copy != nullptr) copy[i] = to_bfloat16(parameters[i]);
  }
}

void adagrad(const AdagradFactors& f, std::size_t count, const float* grad, float* parameters,
             float* sum, bfloat16* copy) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = std::fma(f.weight_decay, parameters[i], grad[i] * f.grad_scale);
    sum[i] = std::fma(g, g, std::fma(f.keep, sum[i], f.start));
    parameters[i] = parameters[i] - f.lr * (g / (std::sqrt(sum[i]) + f.eps));
    if (copy != nullptr) copy[i] = to_bfloat16(parameters[i]);
  }
}

}  // namespace

const OptimizerKernels kOptimizerReference = {.adamw = adamw, .sgd = sgd, .adagrad = adagrad};

}  // namespace tandem::kernels
