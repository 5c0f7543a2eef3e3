#include "tandem/tasks/embedding/minimal_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem::tasks::embedding {
namespace {

class MinimalLoss final : public EmbeddingLoss {
 public:
  explicit MinimalLoss(double scale) : scale_(scale) {}
  std::int64_t statistics_per_row(const EmbeddedRows&) const override { return 2; }

  void row_statistics(const EmbeddedRows& g, RowRange range, std::span<float> statistics,
                      ThreadPool& threads) const override {
    threads.parallel_for(static_cast<std::size_t>(range.end - range.begin),
                         [&](std::size_t k, int) {
                           const std::int64_t i = range.begin + static_cast<std::int64_t>(k);
                           double most = -1e300, sum = 0;
                           for (std::int64_t j = 0; j < candidates(g); ++j)
                             most = std::max(most, logit(g, i, j));
                           for (std::int64_t j = 0; j < candidates(g); ++j)
                             sum += std::exp(logit(g, i, j) - most);
                           const double lse = most + std::log(sum);
                           statistics[2 * k] = static_cast<float>(lse);
                           statistics[2 * k + 1] = static_cast<float>(lse - logit(g, i, i));
                         });
  }

  double loss_and_gradient(const EmbeddedRows& g, std::span<const float> statistics, RowRange range,
                           std::span<float> gradient, ThreadPool& threads) const override {
    double loss = 0;
    for (std::int64_t i = 0; i < g.rows; ++i)
      loss += statistics[static_cast<std::size_t>(2 * i + 1)];
    const std::int64_t own = range.end - range.begin;
    threads.parallel_for(static_cast<std::size_t>(g.columns * own), [&](std::size_t k, int) {
      const std::int64_t column = static_cast<std::int64_t>(k) / own;
      const std::int64_t row = range.begin + static_cast<std::int64_t>(k) % own;
      std::vector<double> sum(static_cast<std::size_t>(g.width));
      const auto add = [&](std::int64_t i, std::int64_t j) {
        const double p = std::exp(logit(g, i, j) - statistics[static_cast<std::size_t>(2 * i)]);
        const double weight = scale_ * (p - (i == j ? 1 : 0)) / static_cast<double>(g.rows);
        const float* a = at(g, 0, i);
        const float* b = at(g, 1 + j / g.rows, j % g.rows);
        const double na = norm(g, a), nb = norm(g, b), c = dot(g, a, b) / (na * nb);
        const float* x = column == 0 ? a : b;
        const float* y = column == 0 ? b : a;
        const double nx = column == 0 ? na : nb, ny = column == 0 ? nb : na;
        for (std::size_t w = 0; w < sum.size(); ++w)
          sum[w] += weight * (y[w] / ny - c * x[w] / nx) / nx;
      };
      if (column == 0) {
        for (std::int64_t j = 0; j < candidates(g); ++j) add(row, j);
      } else {
        for (std::int64_t i = 0; i < g.rows; ++i) add(i, (column - 1) * g.rows + row);
      }
      for (std::size_t w = 0; w < sum.size(); ++w)
        gradient[k * sum.size() + w] = static_cast<float>(sum[w]);
    });
    return loss / static_cast<double>(g.rows);
  }

 private:
  static std::int64_t candidates(const EmbeddedRows& g) { return (g.columns - 1) * g.rows; }
  static const float* at(const EmbeddedRows& g, std::int64_t column, std::int64_t row) {
    return g.values.data() + (column * g.rows + row) * g.width;
  }
  static double dot(const EmbeddedRows& g, const float* a, const float* b) {
    double sum = 0;
    for (std::int64_t w = 0; w < g.width; ++w) sum += static_cast<double>(a[w]) * b[w];
    return sum;
  }
  static double norm(const EmbeddedRows& g, const float* a) {
    return std::max(std::sqrt(dot(g, a, a)), 1e-12);
  }
  double logit(const EmbeddedRows& g, std::int64_t i, std::int64_t j) const {
    const float* a = at(g, 0, i);
    const float* b = at(g, 1 + j / g.rows, j % g.rows);
    return scale_ * dot(g, a, b) / (norm(g, a) * norm(g, b));
  }

  double scale_;
};

}  // namespace

std::unique_ptr<EmbeddingLoss> make_minimal_loss(double scale) {
  return std::make_unique<MinimalLoss>(scale);
}

}  // namespace tandem::tasks::embedding
