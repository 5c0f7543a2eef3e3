#include "tandem/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/kernels/chunked_sum.h"

namespace tandem::kernels {
namespace {

// The range of one softmax: `count` logits that are `stride` apart.
struct Choices {
  const float* logits;
  std::size_t count;
  std::size_t stride;
  double operator[](std::size_t i) const { return logits[i * stride]; }
};

double log_sum_exp(const Choices& x) {
  double largest = x[0];
  for (std::size_t i = 1; i < x.count; ++i) largest = std::max(largest, x[i]);
  double sum = 0;
  for (std::size_t i = 0; i < x.count; ++i) sum += std::exp(x[i] - largest);
  return largest + std::log(sum);
}

std::size_t row_of_target(std::int32_t target) {
  return static_cast<std::size_t>(std::max(target, 0));
}

// The target distribution of a softmax: `target` for the one, `other` for each of the rest.
struct Wanted {
  std::size_t index;
  double target = 1;
  double other = 0;
};

// d loss / d logit = (softmax - wanted) * factor. grad may be the logits.
void write_gradient(const Choices& x, double lse, const Wanted& wanted, double factor,
                    float* grad) {
  for (std::size_t i = 0; i < x.count; ++i) {
    const double p = std::exp(x[i] - lse);
    grad[i * x.stride] =
        static_cast<float>((p - (i == wanted.index ? wanted.target : wanted.other)) * factor);
  }
}

// -sum over the choices of wanted * log softmax.
double loss_of(const Choices& x, double lse, const Wanted& wanted) {
  if (wanted.other == 0) return lse - x[wanted.index];
  double sum = 0;
  for (std::size_t i = 0; i < x.count; ++i) sum += lse - x[i];
  return wanted.other * sum + (wanted.target - wanted.other) * (lse - x[wanted.index]);
}

// The mean loss of one side over the sequences whose target is not ignored.
double side_loss(const Sequences& sequences, const float* logits, const std::int32_t* targets,
                 double grad_scale, float* grad_logits) {
  std::size_t counted = 0;
  for (std::size_t i = 0; i < sequences.count(); ++i)
    counted += row_of_target(targets[i]) < sequences.rows_of(i);
  double sum = 0;
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    const Choices side{logits + 2 * sequences.row_begin[i], sequences.rows_of(i), 2};
    const std::size_t target = row_of_target(targets[i]);
    const bool ignored = target >= side.count;
    float* grad = grad_logits == nullptr ? nullptr : grad_logits + 2 * sequences.row_begin[i];
    if (ignored) {
      for (std::size_t row = 0; grad != nullptr && row < side.count; ++row) grad[2 * row] = 0.0f;
      continue;
    }
    const double lse = log_sum_exp(side);
    sum += lse - side[target];
    if (grad != nullptr)
      write_gradient(side, lse, {target}, 0.5 * grad_scale / static_cast<double>(counted), grad);
  }
  return sum / static_cast<double>(counted);  // 0 / 0 = NaN when all are ignored
}

std::size_t count_targets(const ClassTargets& targets) {
  std::size_t counted = 0;
  for (std::size_t row = 0; row < targets.rows; ++row) {
    const std::int32_t target = targets.target[row];
    if (target == kIgnoredTarget) continue;
    if (target < 0 || static_cast<std::size_t>(target) >= targets.classes) {
      raise<InvalidArgument>("row {} has the label {}; expected 0 to {}, or {} for none", row,
                             target, targets.classes - 1, kIgnoredTarget);
    }
    ++counted;
  }
  return counted;
}

}  // namespace

double span_cross_entropy(const Context&, const Sequences& sequences, const float* logits,
                          const std::int32_t* start, const std::int32_t* end, float grad_scale,
                          float* grad_logits) {
  check_sequences(sequences);
  const double start_loss = side_loss(sequences, logits, start, grad_scale, grad_logits);
  const double end_loss = side_loss(sequences, logits + 1, end, grad_scale,
                                    grad_logits == nullptr ? nullptr : grad_logits + 1);
  return 0.5 * (start_loss + end_loss);
}

double cross_entropy(const Context& ctx, const ClassTargets& targets, const float* logits,
                     float grad_scale, float* grad_logits) {
  const std::size_t classes = targets.classes;
  const auto counted = static_cast<double>(count_targets(targets));
  const double other = targets.smoothing / static_cast<double>(classes);
  const double sum = chunked_sum(ctx, targets.rows, [&](std::size_t row) {
    float* const grad = grad_logits == nullptr ? nullptr : grad_logits + row * classes;
    if (targets.target[row] == kIgnoredTarget) {
      if (grad != nullptr) std::fill_n(grad, classes, 0.0f);
      return 0.0;
    }
    const Choices x{logits + row * classes, classes, 1};
    const Wanted wanted{static_cast<std::size_t>(targets.target[row]),
                        1 - targets.smoothing + other, other};
    const double lse = log_sum_exp(x);
    const double loss = loss_of(x, lse, wanted);
    if (grad != nullptr) write_gradient(x, lse, wanted, grad_scale / counted, grad);
    return loss;
  });
  return sum / counted;  // 0 / 0 = NaN when no row counts
}

double binary_cross_entropy(const Context& ctx, std::size_t count, const float* logits,
                            const float* targets, float grad_scale, float* grad_logits) {
  const auto cells = static_cast<double>(count);
  const double sum = chunked_sum(ctx, count, [&](std::size_t i) {
    const double x = logits[i];
    const double t = targets[i];
    const double bell = std::exp(-std::abs(x));
    if (grad_logits != nullptr) {
      const double probability = (x < 0 ? bell : 1.0) / (1.0 + bell);
      grad_logits[i] = static_cast<float>((probability - t) * grad_scale / cells);
    }
    // log(1 + e^x) - t x
    return std::max(x, 0.0) + std::log1p(bell) - t * x;
  });
  return sum / cells;
}

}  // namespace tandem::kernels
