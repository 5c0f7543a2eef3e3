#include "tandem/kernels/adamw.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

AdamWFactors factors_of(const AdamWStep& s) {
  if (s.step < 1) raise<InvalidArgument>("AdamW counts its steps from 1, got {}", s.step);
  const auto t = static_cast<double>(s.step);
  const double correction1 = 1.0 - std::pow(s.beta1, t);
  const double correction2 = 1.0 - std::pow(s.beta2, t);
  AdamWFactors factors = {
      .grad_scale = s.grad_scale,
      .decay = static_cast<float>(1.0 - s.lr * s.weight_decay),
      .one_minus_beta1 = static_cast<float>(1.0 - s.beta1),
      .beta2 = static_cast<float>(s.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - s.beta2),
      .step_size = static_cast<float>(s.lr / correction1),
      .inverse_sqrt_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
      .eps = static_cast<float>(s.eps),
      .decay_after = 1.0f};
  if (s.form == AdamWForm::kHuggingFace) {
    std::swap(factors.decay, factors.decay_after);
    factors.step_size = static_cast<float>(s.lr * std::sqrt(correction2) / correction1);
    factors.inverse_sqrt_correction2 = 1.0f;
  }
  return factors;
}

}  // namespace

void adamw(const Context& ctx, std::size_t count, const AdamWStep& step, const float* grad,
           float* parameters, float* exp_avg, float* exp_avg_sq, bfloat16* copy) {
  const AdamWFactors factors = factors_of(step);
  constexpr std::size_t kChunk = 16384;
  ctx.threads.parallel_for(num_chunks(count, kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = chunk * kChunk;
    ctx.kernels.optimizer->adamw(factors, std::min(kChunk, count - begin), grad + begin,
                                 parameters + begin, exp_avg + begin, exp_avg_sq + begin,
                                 copy == nullptr ? nullptr : copy + begin, /*undo=*/nullptr);
  });
}

void adamw(const KernelSet& kernels, std::size_t count, const AdamWStep& step, const float* grad,
           float* parameters, float* exp_avg, float* exp_avg_sq, bfloat16* copy,
           const UndoLog* undo) {
  kernels.optimizer->adamw(factors_of(step), count, grad, parameters, exp_avg, exp_avg_sq, copy,
                           undo);
}

}  // namespace tandem::kernels
