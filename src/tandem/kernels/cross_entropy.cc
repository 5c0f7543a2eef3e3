#include "tandem/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

namespace tandem::kernels {
namespace {

// One side (0 = start, 1 = end) of one sequence: the logits are 2 apart.
struct Side {
  const float* logits;
  std::size_t rows;
  float logit(std::size_t row) const { return logits[2 * row]; }
};

double log_sum_exp(const Side& side) {
  double largest = side.logit(0);
  for (std::size_t row = 1; row < side.rows; ++row)
    largest = std::max<double>(largest, side.logit(row));
  double sum = 0;
  for (std::size_t row = 0; row < side.rows; ++row) sum += std::exp(side.logit(row) - largest);
  return largest + std::log(sum);
}

std::size_t row_of_target(std::int32_t target) {
  return static_cast<std::size_t>(std::max(target, 0));
}

// d loss / d logit = (softmax - 1[row is the target]) * factor; the softmax of an ignored side has
// factor 0.
void write_gradient(const Side& side, double lse, std::size_t target, double factor, float* grad) {
  for (std::size_t row = 0; row < side.rows; ++row) {
    const double p = std::exp(side.logit(row) - lse);
    grad[2 * row] = static_cast<float>((p - (row == target ? 1.0 : 0.0)) * factor);
  }
}

// The mean loss of one side over the sequences whose target is not ignored.
double side_loss(const Sequences& sequences, const float* logits, const std::int32_t* targets,
                 double grad_scale, float* grad_logits) {
  std::size_t counted = 0;
  for (std::size_t i = 0; i < sequences.count(); ++i)
    counted += row_of_target(targets[i]) < sequences.rows_of(i);
  double sum = 0;
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    const Side side{logits + 2 * sequences.row_begin[i], sequences.rows_of(i)};
    const std::size_t target = row_of_target(targets[i]);
    const bool ignored = target >= side.rows;
    float* grad = grad_logits == nullptr ? nullptr : grad_logits + 2 * sequences.row_begin[i];
    if (ignored) {
      for (std::size_t row = 0; grad != nullptr && row < side.rows; ++row) grad[2 * row] = 0.0f;
      continue;
    }
    const double lse = log_sum_exp(side);
    sum += lse - side.logit(target);
    if (grad != nullptr)
      write_gradient(side, lse, target, 0.5 * grad_scale / static_cast<double>(counted), grad);
  }
  return sum / static_cast<double>(counted);  // 0 / 0 = NaN when all are ignored
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

}  // namespace tandem::kernels
