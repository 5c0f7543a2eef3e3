#include "tandem/kernels/gradient_descent.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

constexpr std::size_t kChunk = 16384;

void check_step(const char* name, std::int64_t step) {
  if (step < 1) raise<InvalidArgument>("{} counts its steps from 1, got {}", name, step);
}

SgdFactors factors_of(const SgdStep& step, const float* buffer) {
  check_step("SGD", step.step);
  if (step.momentum != 0 && buffer == nullptr)
    raise<InvalidArgument>("SGD with momentum {} needs a buffer", step.momentum);
  const bool first = step.step == 1;
  return {.grad_scale = step.grad_scale,
          .weight_decay = static_cast<float>(step.weight_decay),
          .lr = static_cast<float>(step.lr),
          .keep = first ? 0.0f : static_cast<float>(step.momentum),
          .add = first ? 1.0f : static_cast<float>(1.0 - step.dampening),
          .ahead = step.nesterov ? static_cast<float>(step.momentum) : 0.0f,
          .nesterov = step.nesterov};
}

AdagradFactors factors_of(const AdagradStep& step) {
  check_step("Adagrad", step.step);
  const bool first = step.step == 1;
  const double lr = step.lr / (1.0 + static_cast<double>(step.step - 1) * step.lr_decay);
  return {.grad_scale = step.grad_scale,
          .weight_decay = static_cast<float>(step.weight_decay),
          .lr = static_cast<float>(lr),
          .eps = static_cast<float>(step.eps),
          .keep = first ? 0.0f : 1.0f,
          .start = first ? static_cast<float>(step.initial_sum) : 0.0f};
}

template <class T>
T* shifted(T* p, std::size_t begin) {
  return p == nullptr ? nullptr : p + begin;
}

}  // namespace

void sgd(const Context& ctx, std::size_t count, const SgdStep& step, const float* grad,
         float* parameters, float* buffer, bfloat16* copy) {
  const SgdFactors factors = factors_of(step, buffer);
  ctx.threads.parallel_for(num_chunks(count, kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = chunk * kChunk;
    ctx.kernels.optimizer->sgd(factors, std::min(kChunk, count - begin), grad + begin,
                               parameters + begin, step.momentum == 0 ? nullptr : buffer + begin,
                               shifted(copy, begin), /*undo=*/nullptr);
  });
}

void sgd(const KernelSet& kernels, std::size_t count, const SgdStep& step, const float* grad,
         float* parameters, float* buffer, bfloat16* copy, const UndoLog* undo) {
  kernels.optimizer->sgd(factors_of(step, buffer), count, grad, parameters,
                         step.momentum == 0 ? nullptr : buffer, copy, undo);
}

void adagrad(const Context& ctx, std::size_t count, const AdagradStep& step, const float* grad,
             float* parameters, float* sum, bfloat16* copy) {
  const AdagradFactors factors = factors_of(step);
  ctx.threads.parallel_for(num_chunks(count, kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = chunk * kChunk;
    ctx.kernels.optimizer->adagrad(factors, std::min(kChunk, count - begin), grad + begin,
                                   parameters + begin, sum + begin, shifted(copy, begin),
                                   /*undo=*/nullptr);
  });
}

void adagrad(const KernelSet& kernels, std::size_t count, const AdagradStep& step,
             const float* grad, float* parameters, float* sum, bfloat16* copy,
             const UndoLog* undo) {
  kernels.optimizer->adagrad(factors_of(step), count, grad, parameters, sum, copy, undo);
}

}  // namespace tandem::kernels
