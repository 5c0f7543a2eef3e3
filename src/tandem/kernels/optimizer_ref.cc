// The reference optimizers, in the f32 steps that adamw.h and gradient_descent.h spell out.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/undo_log.h"

namespace tandem::kernels {
namespace {

// update(begin, end) for all of [0, count); with a log in blocks, of which `arrays` are kept first.
template <class Update>
void in_blocks(std::size_t count, const UndoLog* undo, std::initializer_list<const float*> arrays,
               Update update) {
  if (undo == nullptr) return update(0, count);
  std::size_t half = undo->next_half();
  for (std::size_t begin = 0; begin < count; begin += UndoLog::kBlock, half ^= 1) {
    const std::size_t size = std::min(UndoLog::kBlock, count - begin);
    float* values = undo->values + half * UndoLog::kHalf;
    for (const float* array : arrays) {
      if (array != nullptr) std::copy_n(array + begin, size, values);
      values += UndoLog::kBlock;
    }
    undo->keep(begin, size, half);
    update(begin, begin + size);
  }
}

void adamw(const AdamWFactors& f, std::size_t count, const float* grad, float* parameters,
           float* exp_avg, float* exp_avg_sq, bfloat16* copy, const UndoLog* undo) {
  in_blocks(
      count, undo, {parameters, exp_avg, exp_avg_sq}, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
          const float g = grad[i] * f.grad_scale;
          exp_avg[i] = std::fma(f.one_minus_beta1, g - exp_avg[i], exp_avg[i]);
          exp_avg_sq[i] = std::fma(f.one_minus_beta2 * g, g, f.beta2 * exp_avg_sq[i]);
          const float denominator =
              std::fma(std::sqrt(exp_avg_sq[i]), f.inverse_sqrt_correction2, f.eps);
          parameters[i] =
              (parameters[i] * f.decay - f.step_size * (exp_avg[i] / denominator)) * f.decay_after;
          if (copy != nullptr) copy[i] = to_bfloat16(parameters[i]);
        }
      });
}

void sgd(const SgdFactors& f, std::size_t count, const float* grad, float* parameters,
         float* buffer, bfloat16* copy, const UndoLog* undo) {
  in_blocks(count, undo, {parameters, buffer}, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const float g = std::fma(f.weight_decay, parameters[i], grad[i] * f.grad_scale);
      float update = g;
      if (buffer != nullptr) {
        buffer[i] = std::fma(f.add, g, f.keep * buffer[i]);
        update = f.nesterov ? std::fma(f.ahead, buffer[i], g) : buffer[i];
      }
      parameters[i] = std::fma(-f.lr, update, parameters[i]);
      if (copy != nullptr) copy[i] = to_bfloat16(parameters[i]);
    }
  });
}

void adagrad(const AdagradFactors& f, std::size_t count, const float* grad, float* parameters,
             float* sum, bfloat16* copy, const UndoLog* undo) {
  in_blocks(count, undo, {parameters, sum}, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const float g = std::fma(f.weight_decay, parameters[i], grad[i] * f.grad_scale);
      sum[i] = std::fma(g, g, std::fma(f.keep, sum[i], f.start));
      parameters[i] = parameters[i] - f.lr * (g / (std::sqrt(sum[i]) + f.eps));
      if (copy != nullptr) copy[i] = to_bfloat16(parameters[i]);
    }
  });
}

}  // namespace

const OptimizerKernels kOptimizerReference = {.adamw = adamw, .sgd = sgd, .adagrad = adagrad};

}  // namespace tandem::kernels
