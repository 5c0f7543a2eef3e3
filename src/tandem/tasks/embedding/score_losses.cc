#include "tandem/tasks/embedding/score_losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/tasks/ranking/log_sum.h"

namespace tandem::tasks::embedding {
namespace {

// Rows by label, ascending; rows of one label keep their order.
std::vector<std::size_t> rows_by_label(std::span<const float> labels) {
  std::vector<std::size_t> order(labels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return labels[a] < labels[b]; });
  return order;
}

// For each row the logarithm of Σ exp(exponents) over the rows before it in `order` that have
// another label.
std::vector<double> sums_of_other_labels(std::span<const std::size_t> order,
                                         std::span<const float> labels,
                                         std::span<const double> exponents) {
  std::vector<double> sums(order.size());
  double before = ranking::kNoTerm, with_label = ranking::kNoTerm;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (k > 0 && labels[order[k]] != labels[order[k - 1]]) before = with_label;
    sums[order[k]] = before;
    with_label = ranking::log_add(with_label, exponents[order[k]]);
  }
  return sums;
}

// The scores of a group's rows, computed in parallel.
std::vector<double> scores_of(const EmbeddedRows& group, const ranking::PairFunction& pair,
                              ThreadPool& threads) {
  const std::size_t pairs = group.columns - 1;
  std::vector<double> scores(group.rows * pairs);
  threads.parallel_for(group.rows, [&](std::size_t row, int) {
    for (std::size_t k = 0; k < pairs; ++k)
      scores[row * pairs + k] = pair.value(text(group, 0, row), text(group, k + 1, row));
  });
  return scores;
}

// A loss that every rank computes from all rows, without a first pass.
class OnePassLoss : public EmbeddingLoss {
 public:
  std::size_t statistics_per_row(const EmbeddedRows&) const final { return 0; }
  void row_statistics(const EmbeddedRows&, RowRange, std::span<float>,
                      const kernels::Context&) const final {}
};

class PairScoreLoss final : public OnePassLoss {
 public:
  PairScoreLoss(const ranking::PairFunction& pair, ScoreLoss loss, double parameter)
      : pair_(pair), loss_(loss), parameter_(parameter) {}

  double loss_and_gradient(const EmbeddedRows& group, std::span<const float>, RowRange range,
                           std::span<float> gradient,
                           const kernels::Context& context) const override {
    const std::vector<double> scores = scores_of(group, pair_, context.threads);
    std::vector<double> slopes(scores.size());
    const double loss = loss_({group.rows, scores, group.labels}, parameter_, slopes);
    context.threads.parallel_for(range.size(), [&](std::size_t index, int) {
      write_row(group, range, index, slopes, gradient);
    });
    return loss;
  }

 private:
  void write_row(const EmbeddedRows& group, RowRange range, std::size_t index,
                 std::span<const double> slopes, std::span<float> gradient) const {
    const std::size_t row = range.begin + index, pairs = group.columns - 1, width = group.width;
    std::vector<double> sums(group.columns * width);
    const auto of_column = [&](std::size_t column) {
      return std::span(sums).subspan(column * width, width);
    };
    for (std::size_t k = 0; k < pairs; ++k)
      if (const double slope = slopes[row * pairs + k]; slope != 0)
        pair_.add_gradient(text(group, 0, row), text(group, k + 1, row), slope, of_column(0),
                           of_column(k + 1));
    for (std::size_t column = 0; column < group.columns; ++column) {
      const auto to = gradient.subspan((column * range.size() + index) * width, width);
      std::transform(of_column(column).begin(), of_column(column).end(), to.begin(),
                     [](double value) { return static_cast<float>(value); });
    }
  }

  const ranking::PairFunction& pair_;
  ScoreLoss loss_;
  double parameter_;
};

class TeacherLoss final : public OnePassLoss {
 public:
  double loss_and_gradient(const EmbeddedRows& group, std::span<const float>, RowRange range,
                           std::span<float> gradient,
                           const kernels::Context& context) const override {
    const double numbers = static_cast<double>(group.columns * group.rows * group.width);
    double loss = 0;
    for (std::size_t column = 0; column < group.columns; ++column)
      for (std::size_t row = 0; row < group.rows; ++row)
        for (std::size_t i = 0; i < group.width; ++i) {
          const double difference = error(group, column, row, i);
          loss += difference * difference;
        }
    context.threads.parallel_for(group.columns * range.size(), [&](std::size_t at, int) {
      const std::size_t column = at / range.size(), row = range.begin + at % range.size();
      for (std::size_t i = 0; i < group.width; ++i)
        gradient[at * group.width + i] =
            static_cast<float>(2 * error(group, column, row, i) / numbers);
    });
    return loss / numbers;
  }

 private:
  static double error(const EmbeddedRows& group, std::size_t column, std::size_t row,
                      std::size_t i) {
    const std::size_t per_row = group.labels.size() / group.rows;
    const std::size_t first = per_row > group.width ? column * group.width : 0;
    return static_cast<double>(text(group, column, row)[i]) -
           group.labels[row * per_row + first + i];
  }
};

}  // namespace

double squared_error(const RowScores& scores, double, std::span<double> slopes) {
  const auto rows = static_cast<double>(scores.rows);
  double loss = 0;
  for (std::size_t row = 0; row < scores.rows; ++row) {
    const double error = scores.values[row] - scores.labels[row];
    loss += error * error / rows;
    slopes[row] = 2 * error / rows;
  }
  return loss;
}

// In logarithms, sorted by label: n log n, and no exponential overflows.
double cosent(const RowScores& scores, double scale, std::span<double> slopes) {
  std::vector<double> up(scores.rows), down(scores.rows);
  for (std::size_t row = 0; row < scores.rows; ++row) {
    up[row] = scale * scores.values[row];
    down[row] = -up[row];
  }
  std::vector<std::size_t> order = rows_by_label(scores.labels);
  const std::vector<double> of_lower = sums_of_other_labels(order, scores.labels, up);
  double total = 0;
  for (const std::size_t row : order) total = ranking::log_add(total, of_lower[row] + down[row]);
  std::reverse(order.begin(), order.end());
  const std::vector<double> of_higher = sums_of_other_labels(order, scores.labels, down);
  for (std::size_t row = 0; row < scores.rows; ++row)
    slopes[row] = scale * (std::exp(up[row] + of_higher[row] - total) -
                           std::exp(of_lower[row] + down[row] - total));
  return total;
}

double contrastive(const RowScores& distances, double margin, std::span<double> slopes) {
  const auto rows = static_cast<double>(distances.rows);
  double loss = 0;
  for (std::size_t row = 0; row < distances.rows; ++row) {
    const double distance = distances.values[row], label = distances.labels[row];
    const double inside = std::max(margin - distance, 0.0);
    loss += 0.5 * (label * distance * distance + (1 - label) * inside * inside) / rows;
    slopes[row] = (label * distance - (1 - label) * inside) / rows;
  }
  return loss;
}

namespace {

// The distances of the pairs of one label.
struct DistanceRange {
  std::size_t count = 0;
  double nearest = std::numeric_limits<double>::infinity();
  double farthest = -std::numeric_limits<double>::infinity();
  double sum = 0;
  void add(double distance) {
    ++count;
    nearest = std::min(nearest, distance);
    farthest = std::max(farthest, distance);
    sum += distance;
  }
  double mean() const { return sum / static_cast<double>(count); }  // NaN without any
};

}  // namespace

double online_contrastive(const RowScores& distances, double margin, std::span<double> slopes) {
  DistanceRange negatives, positives;
  for (std::size_t row = 0; row < distances.rows; ++row) {
    if (distances.labels[row] == 0) negatives.add(distances.values[row]);
    if (distances.labels[row] == 1) positives.add(distances.values[row]);
  }
  // A pair alone on the other side gives no bound: then the own side's mean is it.
  const double negative_bound = positives.count > 1 ? positives.farthest : negatives.mean();
  const double positive_bound = negatives.count > 1 ? negatives.nearest : positives.mean();
  double loss = 0;
  // The comparisons are true for NaN, which must not vanish.
  for (std::size_t row = 0; row < distances.rows; ++row) {
    const double distance = distances.values[row];
    slopes[row] = 0;
    if (distances.labels[row] == 0 && !(distance >= negative_bound)) {
      const double inside = std::max(margin - distance, 0.0);
      loss += inside * inside;
      slopes[row] = -2 * inside;
    } else if (distances.labels[row] == 1 && !(distance <= positive_bound)) {
      loss += distance * distance;
      slopes[row] = 2 * distance;
    }
  }
  return loss;
}

double triplet(const RowScores& distances, double margin, std::span<double> slopes) {
  const auto rows = static_cast<double>(distances.rows);
  double loss = 0;
  for (std::size_t row = 0; row < distances.rows; ++row) {
    const double excess = distances.values[2 * row] - distances.values[2 * row + 1] + margin;
    loss += std::max(excess, 0.0) / rows;
    slopes[2 * row] = excess <= 0 ? 0 : 1 / rows;
    slopes[2 * row + 1] = -slopes[2 * row];
  }
  return loss;
}

double margin_mse(const RowScores& scores, double, std::span<double> slopes) {
  const std::size_t pairs = scores.values.size() / scores.rows, negatives = pairs - 1;
  const std::size_t labels = scores.labels.size() / scores.rows;
  const auto numbers = static_cast<double>(scores.rows * negatives);
  double loss = 0;
  for (std::size_t row = 0; row < scores.rows; ++row) {
    const auto of_row = scores.values.subspan(row * pairs, pairs);
    const auto given = scores.labels.subspan(row * labels, labels);
    double of_positive = 0;
    for (std::size_t k = 0; k < negatives; ++k) {
      const double margin =
          labels == pairs ? static_cast<double>(given[0]) - given[k + 1] : given[k];
      const double error = of_row[0] - of_row[k + 1] - margin;
      loss += error * error / numbers;
      slopes[row * pairs + k + 1] = -2 * error / numbers;
      of_positive += 2 * error / numbers;
    }
    slopes[row * pairs] = of_positive;
  }
  return loss;
}

std::unique_ptr<EmbeddingLoss> make_score_loss(const ranking::PairFunction& pair, ScoreLoss loss,
                                               double parameter) {
  return std::make_unique<PairScoreLoss>(pair, loss, parameter);
}

std::unique_ptr<EmbeddingLoss> make_teacher_loss() { return std::make_unique<TeacherLoss>(); }

}  // namespace tandem::tasks::embedding
