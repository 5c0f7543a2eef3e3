#include "tandem/tasks/embedding/batch_triplet_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tandem/core/thread_pool.h"

namespace tandem::tasks::embedding {
namespace {

constexpr std::size_t kAnchors = 64;  // anchors of a block
constexpr double kSmallestLoss =
    1e-16;  // smallest loss of a triplet that counts, as sentence-transformers has it

// Losses and how many terms they are the mean of.
struct Terms {
  double sum = 0;
  double count = 0;
};

// An anchor among the rows of a group.
struct Anchor {
  std::size_t row = 0;
  std::span<const float> classes;
  std::span<const double> distances;

  bool is_negative(std::size_t other) const { return classes[other] != classes[row]; }
  bool is_positive(std::size_t other) const { return other != row && !is_negative(other); }
};

// Adds max(excess, 0) and its derivatives, 1 by the positive's distance and -1 by the negative's.
void add_triplet(double excess, std::size_t positive, std::size_t negative, Terms& terms,
                 std::span<double> slopes) {
  if (excess <= 0) return;
  terms.sum += excess;
  slopes[positive] += 1;
  slopes[negative] -= 1;
}

Terms all_triplets(const Anchor& anchor, double margin, std::span<double> slopes) {
  Terms terms;
  for (std::size_t p = 0; p < slopes.size(); ++p) {
    if (!anchor.is_positive(p)) continue;
    for (std::size_t n = 0; n < slopes.size(); ++n) {
      if (!anchor.is_negative(n)) continue;
      const double excess = anchor.distances[p] - anchor.distances[n] + margin;
      add_triplet(excess, p, n, terms, slopes);
      if (!(excess <= kSmallestLoss)) terms.count += 1;
    }
  }
  return terms;
}

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// The first row of the smallest value among those that fulfil `counts`; NaN, which must not vanish,
// is the smallest.
template <class Value, class Counts>
std::size_t smallest(std::size_t rows, Value value, Counts counts) {
  std::size_t found = kNone;
  for (std::size_t row = 0; row < rows; ++row)
    if (counts(row) && (found == kNone || !(value(row) >= value(found)))) found = row;
  return found;
}

// An anchor without a positive has the distance 0 for it; one without a negative has its farthest
// row for it.
Terms hardest_triplet(const Anchor& anchor, bool soft, double margin, std::span<double> slopes) {
  const std::size_t rows = slopes.size();
  const auto near = [&](std::size_t row) { return anchor.distances[row]; };
  const auto far = [&](std::size_t row) { return -anchor.distances[row]; };
  const std::size_t positive =
      smallest(rows, far, [&](std::size_t row) { return anchor.is_positive(row); });
  std::size_t negative =
      smallest(rows, near, [&](std::size_t row) { return anchor.is_negative(row); });
  if (negative == kNone) negative = smallest(rows, far, [](std::size_t) { return true; });
  const double difference =
      (positive == kNone ? 0 : anchor.distances[positive]) - anchor.distances[negative];
  const double slope = soft ? 1 / (1 + std::exp(-difference)) : (difference + margin <= 0 ? 0 : 1);
  if (positive != kNone) slopes[positive] += slope;
  slopes[negative] -= slope;
  return {soft ? std::log1p(std::exp(difference)) : std::max(difference + margin, 0.0), 1};
}

// An anchor without a negative has the distance 0 for it: its own.
Terms semi_hard_triplets(const Anchor& anchor, double margin, std::span<double> slopes) {
  const std::size_t rows = slopes.size();
  const auto near = [&](std::size_t row) { return anchor.distances[row]; };
  const auto far = [&](std::size_t row) { return -anchor.distances[row]; };
  const std::size_t farthest =
      smallest(rows, far, [&](std::size_t row) { return anchor.is_negative(row); });
  Terms terms;
  for (std::size_t p = 0; p < rows; ++p) {
    if (!anchor.is_positive(p)) continue;
    const double distance = anchor.distances[p];
    std::size_t negative = smallest(rows, near, [&](std::size_t row) {
      return anchor.is_negative(row) && anchor.distances[row] > distance;
    });
    if (negative == kNone) negative = farthest == kNone ? anchor.row : farthest;
    const double of_negative = negative == anchor.row ? 0 : anchor.distances[negative];
    add_triplet(distance - of_negative + margin, p, negative, terms, slopes);
    terms.count += 1;
  }
  return terms;
}

class BatchTripletLoss final : public EmbeddingLoss {
 public:
  BatchTripletLoss(const ranking::PairFunction& distance, TripletChoice choice, double margin)
      : distance_(distance), choice_(choice), margin_(margin) {}

  std::size_t statistics_per_row(const EmbeddedRows&) const override { return 0; }
  void row_statistics(const EmbeddedRows&, RowRange, std::span<float>,
                      const kernels::Context&) const override {}

  double loss_and_gradient(const EmbeddedRows& group, std::span<const float>, RowRange range,
                           std::span<float> gradient,
                           const kernels::Context& context) const override {
    const std::size_t rows = group.rows;
    std::vector<double> slopes(kAnchors * rows), distances(kAnchors * rows);
    std::vector<double> sums(range.size() * group.width, 0.0);
    std::vector<Terms> of_anchors(kAnchors);
    std::vector<double> others(static_cast<std::size_t>(context.threads.num_threads()) *
                               group.width);
    Terms total;
    for (std::size_t begin = 0; begin < rows; begin += kAnchors) {
      const RowRange block{begin, std::min(begin + kAnchors, rows)};
      context.threads.parallel_for(block.size(), [&](std::size_t i, int) {
        const auto of = [&](std::vector<double>& all) {
          return std::span(all).subspan(i * rows, rows);
        };
        of_anchors[i] = compare(group, begin + i, of(distances), of(slopes));
      });
      for (std::size_t i = 0; i < block.size(); ++i) {
        total.sum += of_anchors[i].sum;
        total.count += of_anchors[i].count;
      }
      context.threads.parallel_for(range.size(), [&](std::size_t i, int thread) {
        add_gradient(
            group, block, slopes, range.begin + i,
            std::span(sums).subspan(i * group.width, group.width),
            std::span(others).subspan(static_cast<std::size_t>(thread) * group.width, group.width));
      });
    }
    const double count = std::max(total.count, kSmallestLoss);
    std::transform(sums.begin(), sums.end(), gradient.begin(),
                   [&](double sum) { return static_cast<float>(sum / count); });
    return total.sum / count;
  }

 private:
  // The terms of one anchor; overwrites `slopes` with their derivatives by its distances.
  Terms compare(const EmbeddedRows& group, std::size_t row, std::span<double> distances,
                std::span<double> slopes) const {
    for (std::size_t other = 0; other < group.rows; ++other)
      distances[other] =
          other == row ? 0 : distance_.value(text(group, 0, row), text(group, 0, other));
    std::fill(slopes.begin(), slopes.end(), 0.0);
    const Anchor anchor{row, group.labels, distances};
    switch (choice_) {
      case TripletChoice::kAll:
        return all_triplets(anchor, margin_, slopes);
      case TripletChoice::kSemiHard:
        return semi_hard_triplets(anchor, margin_, slopes);
      case TripletChoice::kHardest:
        return hardest_triplet(anchor, /*soft=*/false, margin_, slopes);
      case TripletChoice::kHardestSoftMargin:
        return hardest_triplet(anchor, /*soft=*/true, margin_, slopes);
    }
    return {};
  }

  // Adds the gradient of a block of anchors by the embedding of `row`, anchor by anchor. The other
  // half of each pair's gradient goes to `of_other` and is not used.
  void add_gradient(const EmbeddedRows& group, RowRange block, std::span<const double> slopes,
                    std::size_t row, std::span<double> sum, std::span<double> of_other) const {
    const auto add = [&](std::size_t other, double slope) {
      if (slope != 0 && other != row)
        distance_.add_gradient(text(group, 0, row), text(group, 0, other), slope, sum, of_other);
    };
    for (std::size_t anchor = block.begin; anchor < block.end; ++anchor) {
      const auto of_anchor = slopes.subspan((anchor - block.begin) * group.rows, group.rows);
      if (anchor != row) {
        add(anchor, of_anchor[row]);
        continue;
      }
      for (std::size_t other = 0; other < group.rows; ++other) add(other, of_anchor[other]);
    }
  }

  const ranking::PairFunction& distance_;
  TripletChoice choice_;
  double margin_;
};

}  // namespace

std::unique_ptr<EmbeddingLoss> make_batch_triplet_loss(const ranking::PairFunction& distance,
                                                       TripletChoice choice, double margin) {
  return std::make_unique<BatchTripletLoss>(distance, choice, margin);
}

}  // namespace tandem::tasks::embedding
