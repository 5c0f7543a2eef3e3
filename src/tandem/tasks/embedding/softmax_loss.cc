#include "tandem/tasks/embedding/softmax_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/tasks/ranking/log_sum.h"

namespace tandem::tasks::embedding {
namespace {

enum class Part { kFirst, kSecond, kDifference, kProduct };

std::vector<Part> parts_of(const SoftmaxLayer& layer) {
  std::vector<Part> parts;
  if (layer.texts) parts = {Part::kFirst, Part::kSecond};
  if (layer.difference) parts.push_back(Part::kDifference);
  if (layer.product) parts.push_back(Part::kProduct);
  return parts;
}

double feature(Part part, double u, double v) {
  switch (part) {
    case Part::kFirst:
      return u;
    case Part::kSecond:
      return v;
    case Part::kDifference:
      return std::abs(u - v);
    case Part::kProduct:
      return u * v;
  }
  return 0;
}

// The derivatives of feature() by u and v. At u = v that of the difference is 0.
struct Slopes {
  double u = 0;
  double v = 0;
};
Slopes slopes(Part part, double u, double v) {
  switch (part) {
    case Part::kFirst:
      return {1, 0};
    case Part::kSecond:
      return {0, 1};
    case Part::kDifference:
      return u > v ? Slopes{1, -1} : (u < v ? Slopes{-1, 1} : Slopes{u - v, v - u});
    case Part::kProduct:
      return {v, u};
  }
  return {};
}

class SoftmaxPass {
 public:
  SoftmaxPass(const SoftmaxLayer& layer, std::span<const float> parameters,
              const EmbeddedRows& group, ThreadPool& threads)
      : classes_(layer.classes),
        parts_(parts_of(layer)),
        parameters_(parameters),
        group_(group),
        threads_(threads),
        slopes_(group.rows * classes_),
        losses_(group.rows) {
    TANDEM_CHECK(parameters.size() == layer.parameters(group.width) && group.columns == 2);
    threads_.parallel_for(group.rows, [&](std::size_t row, int) { classify(row); });
  }

  double loss() const {
    double sum = 0;
    for (const double loss : losses_) sum += loss;
    return sum / static_cast<double>(group_.rows);
  }

  void write_embeddings(RowRange range, std::span<float> gradient) const {
    threads_.parallel_for(range.size(), [&](std::size_t index, int) {
      const std::size_t row = range.begin + index, width = group_.width;
      for (std::size_t i = 0; i < width; ++i) {
        const Slopes sum = slopes_of(row, i);
        gradient[index * width + i] = static_cast<float>(sum.u);
        gradient[(range.size() + index) * width + i] = static_cast<float>(sum.v);
      }
    });
  }

  void write_parameters(std::span<float> gradient) const {
    threads_.parallel_for(classes_ * parts_.size(), [&](std::size_t at, int) {
      const std::size_t of_class = at / parts_.size(), width = group_.width;
      std::vector<double> sums(width);
      for (std::size_t row = 0; row < group_.rows; ++row)
        for (std::size_t i = 0; i < width; ++i)
          sums[i] += slopes_[row * classes_ + of_class] * value(parts_[at % parts_.size()], row, i);
      for (std::size_t i = 0; i < width; ++i)
        gradient[at * width + i] = static_cast<float>(sums[i]);
    });
    for (std::size_t of_class = 0; of_class < classes_; ++of_class) {
      double sum = 0;
      for (std::size_t row = 0; row < group_.rows; ++row) sum += slopes_[row * classes_ + of_class];
      gradient[bias_at() + of_class] = static_cast<float>(sum);
    }
  }

 private:
  std::size_t bias_at() const { return classes_ * parts_.size() * group_.width; }
  double weight(std::size_t of_class, std::size_t part, std::size_t i) const {
    return parameters_[(of_class * parts_.size() + part) * group_.width + i];
  }
  double value(Part part, std::size_t row, std::size_t i) const {
    return feature(part, text(group_, 0, row)[i], text(group_, 1, row)[i]);
  }

  // The loss of a row, and that of the mean by the row's logits.
  void classify(std::size_t row) {
    std::vector<double> logits(classes_);
    for (std::size_t of_class = 0; of_class < classes_; ++of_class) {
      logits[of_class] = parameters_[bias_at() + of_class];
      for (std::size_t part = 0; part < parts_.size(); ++part)
        for (std::size_t i = 0; i < group_.width; ++i)
          logits[of_class] += weight(of_class, part, i) * value(parts_[part], row, i);
    }
    const auto target = static_cast<std::size_t>(group_.labels[row]);
    TANDEM_CHECK(target < classes_);
    const double log_sum = ranking::log_sum(logits);
    losses_[row] = log_sum - logits[target];
    for (std::size_t of_class = 0; of_class < classes_; ++of_class)
      slopes_[row * classes_ + of_class] =
          (std::exp(logits[of_class] - log_sum) - (of_class == target ? 1 : 0)) /
          static_cast<double>(group_.rows);
  }

  // The derivatives of the loss by component i of both texts.
  Slopes slopes_of(std::size_t row, std::size_t i) const {
    Slopes sum;
    const double u = text(group_, 0, row)[i], v = text(group_, 1, row)[i];
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      double outer = 0;
      for (std::size_t of_class = 0; of_class < classes_; ++of_class)
        outer += slopes_[row * classes_ + of_class] * weight(of_class, part, i);
      const Slopes inner = slopes(parts_[part], u, v);
      sum.u += outer * inner.u;
      sum.v += outer * inner.v;
    }
    return sum;
  }

  std::size_t classes_;
  std::vector<Part> parts_;
  std::span<const float> parameters_;
  const EmbeddedRows& group_;
  ThreadPool& threads_;
  std::vector<double> slopes_;  // [rows, classes]
  std::vector<double> losses_;
};

}  // namespace

double softmax_loss(const SoftmaxLayer& layer, std::span<const float> parameters,
                    const EmbeddedRows& group, RowRange range, const SoftmaxGradients& gradients,
                    const kernels::Context& context) {
  const SoftmaxPass pass(layer, parameters, group, context.threads);
  if (!gradients.embeddings.empty()) pass.write_embeddings(range, gradients.embeddings);
  if (!gradients.parameters.empty()) pass.write_parameters(gradients.parameters);
  return pass.loss();
}

}  // namespace tandem::tasks::embedding
