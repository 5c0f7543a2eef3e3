#include "tandem/tasks/embedding/softmax_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/tasks/ranking/log_sum.h"

namespace tandem::tasks::embedding {
namespace {

// All sums are f64, in the order of features or of rows.
class SoftmaxLoss final : public EmbeddingLoss {
 public:
  explicit SoftmaxLoss(const SoftmaxOptions& options) : options_(options) {}

  std::vector<LossParameter> parameters(std::size_t width) const override {
    return {{"classifier.weight", {options_.classes, features(width)}},
            {"classifier.bias", {options_.classes}}};
  }
  std::size_t statistics_per_row(const EmbeddedRows&) const override { return 0; }
  void row_statistics(const EmbeddedRows&, RowRange, std::span<float>,
                      const kernels::Context&) const override {}
  double loss_and_gradient(const EmbeddedRows& group, std::span<const float>, RowRange range,
                           std::span<float> gradient,
                           const kernels::Context& context) const override;

 private:
  std::size_t features(std::size_t width) const {
    return width *
           ((options_.texts ? 2 : 0) + (options_.difference ? 1 : 0) + (options_.product ? 1 : 0));
  }
  void fill_features(const EmbeddedRows& group, std::size_t row, std::span<double> to) const;
  void text_gradient(const EmbeddedRows& group, std::size_t row, std::span<const double> slopes,
                     std::span<float> of_first, std::span<float> of_second) const;

  SoftmaxOptions options_;
};

void SoftmaxLoss::fill_features(const EmbeddedRows& group, std::size_t row,
                                std::span<double> to) const {
  const auto u = text(group, 0, row), v = text(group, 1, row);
  auto at = to.begin();
  if (options_.texts) at = std::copy(v.begin(), v.end(), std::copy(u.begin(), u.end(), at));
  for (std::size_t i = 0; options_.difference && i < u.size(); ++i) *at++ = std::abs(u[i] - v[i]);
  for (std::size_t i = 0; options_.product && i < u.size(); ++i)
    *at++ = static_cast<double>(u[i]) * v[i];
}

// slopes: the loss's derivatives by the features of the row.
void SoftmaxLoss::text_gradient(const EmbeddedRows& group, std::size_t row,
                                std::span<const double> slopes, std::span<float> of_first,
                                std::span<float> of_second) const {
  const auto u = text(group, 0, row), v = text(group, 1, row);
  for (std::size_t i = 0; i < group.width; ++i) {
    double first = 0, second = 0;
    std::size_t at = i;
    if (options_.texts) {
      first += slopes[at];
      second += slopes[at + group.width];
      at += 2 * group.width;
    }
    if (options_.difference) {
      const double sign = u[i] > v[i] ? 1 : u[i] < v[i] ? -1 : 0;
      first += sign * slopes[at];
      second -= sign * slopes[at];
      at += group.width;
    }
    if (options_.product) {
      first += v[i] * slopes[at];
      second += u[i] * slopes[at];
    }
    of_first[i] = static_cast<float>(first);
    of_second[i] = static_cast<float>(second);
  }
}

double SoftmaxLoss::loss_and_gradient(const EmbeddedRows& group, std::span<const float>,
                                      RowRange range, std::span<float> gradient,
                                      const kernels::Context& context) const {
  const std::size_t count = features(group.width), classes = options_.classes;
  const std::size_t rows = group.rows, size = range.size() * group.width;
  const auto weight = group.parameters.first(classes * count);
  const auto bias = group.parameters.subspan(classes * count, classes);
  std::vector<double> inputs(rows * count), slopes(rows * classes), losses(rows);
  context.threads.parallel_for(rows, [&](std::size_t row, int) {
    const auto input = std::span(inputs).subspan(row * count, count);
    const auto slope = std::span(slopes).subspan(row * classes, classes);
    fill_features(group, row, input);
    for (std::size_t c = 0; c < classes; ++c) {
      slope[c] = bias[c];
      for (std::size_t i = 0; i < count; ++i) slope[c] += input[i] * weight[c * count + i];
    }
    const double log_sum = ranking::log_sum(slope);
    const auto label = static_cast<std::size_t>(group.labels[row]);
    losses[row] = log_sum - slope[label];
    for (std::size_t c = 0; c < classes; ++c)
      slope[c] = (std::exp(slope[c] - log_sum) - (c == label ? 1 : 0)) / static_cast<double>(rows);
    if (row < range.begin || row >= range.end) return;
    std::vector<double> of_input(count, 0.0);
    for (std::size_t c = 0; c < classes; ++c)
      for (std::size_t i = 0; i < count; ++i) of_input[i] += slope[c] * weight[c * count + i];
    const std::size_t at = (row - range.begin) * group.width;
    text_gradient(group, row, of_input, gradient.subspan(at, group.width),
                  gradient.subspan(size + at, group.width));
  });
  const auto of_parameters = gradient.subspan(2 * size);
  context.threads.parallel_for(classes, [&](std::size_t c, int) {
    std::vector<double> sums(count + 1, 0.0);  // the bias last
    for (std::size_t row = range.begin; row < range.end; ++row) {
      const double slope = slopes[row * classes + c];
      for (std::size_t i = 0; i < count; ++i) sums[i] += slope * inputs[row * count + i];
      sums[count] += slope;
    }
    for (std::size_t i = 0; i < count; ++i)
      of_parameters[c * count + i] = static_cast<float>(sums[i]);
    of_parameters[classes * count + c] = static_cast<float>(sums[count]);
  });
  double loss = 0;
  for (const double of_row : losses) loss += of_row / static_cast<double>(rows);
  return loss;
}

}  // namespace

std::unique_ptr<EmbeddingLoss> make_softmax_loss(const SoftmaxOptions& options) {
  return std::make_unique<SoftmaxLoss>(options);
}

}  // namespace tandem::tasks::embedding
