#include "tandem/optim/adamw.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/kernels/adamw.h"

namespace tandem::optim {

void AdamWOptions::validate() const {
  const auto check = [](const char* flag, double value, bool valid, const char* expected) {
    if (!valid) raise<ConfigError>("--{} is {}; expected {}", flag, value, expected);
  };
  check("adam_beta1", beta1, beta1 >= 0 && beta1 < 1, "a number in [0, 1)");
  check("adam_beta2", beta2, beta2 >= 0 && beta2 < 1, "a number in [0, 1)");
  check("adam_epsilon", epsilon, epsilon >= 0, "a number >= 0");
  check("weight_decay", weight_decay, weight_decay >= 0, "a number >= 0");
}

AdamW::AdamW(const AdamWOptions& options, const nn::ParameterLayout& layout)
    : options_(options), ranges_(layout.trainable_ranges()) {
  options_.validate();
}

void AdamW::step(const kernels::Context& context, const AdamWStep& step,
                 const ParameterArenas& arenas, std::size_t begin, std::size_t end) const {
  kernels::AdamWStep kernel_step = {.lr = step.learning_rate,
                                    .beta1 = options_.beta1,
                                    .beta2 = options_.beta2,
                                    .eps = options_.epsilon,
                                    .weight_decay = 0,
                                    .step = static_cast<std::int64_t>(step.step),
                                    .grad_scale = static_cast<float>(step.gradient_scale)};
  for (const nn::ElementRange& range : ranges_) {
    const std::size_t from = std::max(begin, range.begin);
    const std::size_t to = std::min(end, range.end);
    if (from >= to) continue;
    kernel_step.weight_decay = range.weight_decay ? options_.weight_decay : 0.0;
    bfloat16* const copy =
        arenas.weights_bf16.empty() ? nullptr : arenas.weights_bf16.data() + from;
    kernels::adamw(context, to - from, kernel_step, arenas.gradients.data() + from,
                   arenas.weights.data() + from, arenas.exp_avg.data() + from,
                   arenas.exp_avg_sq.data() + from, copy);
  }
}

}  // namespace tandem::optim
