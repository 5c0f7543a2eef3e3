#include "tandem/tasks/reranking/list_losses.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "tandem/tasks/ranking/log_sum.h"

namespace tandem::tasks::reranking {
namespace {

constexpr double kSmallest = 1e-10;  // smallest argument of a logarithm
constexpr double kMu = 10;           // weight of NDCGLoss2 in NDCGLoss2++

// Indices of `values`, the largest first; equal ones keep their order, NaNs are the last ones.
std::vector<std::size_t> largest_first(Scores values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return values[a] > values[b] || (std::isnan(values[b]) && !std::isnan(values[a]));
  });
  return order;
}

// 2^(n - p) - 1 is divided by 2^n, which cancels in the shares: weights of long lists are finite.
std::vector<double> rank_weights(std::size_t documents, RankWeights kind) {
  std::vector<double> weights(documents, 1);
  if (kind == RankWeights::kEqual) return weights;
  double sum = 0;
  for (std::size_t rank = 0; rank < documents; ++rank)
    sum += weights[rank] =
        std::exp2(-static_cast<double>(rank)) - std::exp2(-static_cast<double>(documents));
  for (double& weight : weights) weight /= sum;
  return weights;
}

double discount(std::size_t rank) { return std::log2(1 + static_cast<double>(rank)); }

// Negative labels have no gain.
double gain(double label) { return std::exp2(std::max(label, 0.0)) - 1; }

// The documents in the order of their scores, as LambdaLoss sees them.
struct Ranking {
  std::vector<double> gains;  // gains of each label, divided by the best DCG of the first k

  Ranking(Scores sorted_labels, std::size_t k) {
    std::vector<double> ideal(sorted_labels.begin(), sorted_labels.end());
    std::sort(ideal.rbegin(), ideal.rend());
    double best = 0;
    for (std::size_t i = 0; i < std::min(k, ideal.size()); ++i)
      best += gain(ideal[i]) / discount(i + 1);
    for (const double label : sorted_labels)
      gains.push_back(gain(label) / std::max(best, kSmallest));
  }

  double ndcg2(std::size_t i, std::size_t j) const {
    const std::size_t distance = i > j ? i - j : j - i;
    return std::abs(1 / discount(distance) - 1 / discount(distance + 1)) *
           std::abs(gains[i] - gains[j]);
  }
  double lambda_rank(std::size_t i, std::size_t j) const {
    return std::abs(1 / discount(i + 1) - 1 / discount(j + 1)) * std::abs(gains[i] - gains[j]);
  }
  double weight(PairWeights weights, std::size_t i, std::size_t j) const {
    switch (weights) {
      case PairWeights::kNone:
        return 1;
      case PairWeights::kNdcg1:
        return gains[i] / discount(i + 1);
      case PairWeights::kNdcg2:
        return ndcg2(i, j);
      case PairWeights::kLambdaRank:
        return lambda_rank(i, j);
      case PairWeights::kNdcg2PlusPlus:
        return kMu * ndcg2(i, j) + lambda_rank(i, j);
    }
    return 0;
  }
};

}  // namespace

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double list_net(Scores scores, Scores labels, Slopes slopes) {
  const double of_scores = ranking::log_sum(scores), of_labels = ranking::log_sum(labels);
  double loss = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double target = std::exp(labels[i] - of_labels);
    loss -= target * (scores[i] - of_scores);
    slopes[i] = std::exp(scores[i] - of_scores) - target;
  }
  return loss;
}

double list_mle(Scores scores, Scores labels, ListOrder order, RankWeights weights, Slopes slopes) {
  const std::size_t documents = scores.size();
  std::vector<std::size_t> ranked(documents);
  std::iota(ranked.begin(), ranked.end(), std::size_t{0});
  if (order == ListOrder::kByLabel) ranked = largest_first(labels);
  const std::vector<double> weight = rank_weights(documents, weights);
  // rest[p]: the logarithm of the sum of exponentials from place p on.
  std::vector<double> rest(documents);
  double sum = ranking::kNoTerm;
  for (std::size_t rank = documents; rank-- > 0;)
    rest[rank] = sum = ranking::log_add(sum, scores[ranked[rank]]);
  double loss = 0;
  for (std::size_t rank = 0; rank < documents; ++rank) {
    const std::size_t document = ranked[rank];
    loss += weight[rank] * (rest[rank] - scores[document]);
    slopes[document] = -weight[rank];
    for (std::size_t before = 0; before <= rank; ++before)
      slopes[document] += weight[before] * std::exp(scores[document] - rest[before]);
  }
  return loss;
}

double rank_mse(Scores scores, Scores labels, double alpha, Slopes slopes) {
  const std::size_t documents = scores.size();
  std::fill(slopes.begin(), slopes.end(), 0.0);
  double loss = 0;
  for (std::size_t i = 0; i < documents; ++i) {
    double above = 0, equal = 0, smooth = 0.5;
    for (std::size_t j = 0; j < documents; ++j) {
      above += labels[j] > labels[i] ? 1 : 0;
      equal += labels[j] == labels[i] ? 1 : 0;
      smooth += sigmoid(alpha * (scores[j] - scores[i]));
    }
    const double rank = above + (equal + 1) / 2, error = smooth - rank;
    const double weight = 1 / std::log2(rank + 1);
    loss += weight * error * error;
    for (std::size_t j = 0; j < documents; ++j) {
      const double share = sigmoid(alpha * (scores[j] - scores[i]));
      const double slope = 2 * weight * error * alpha * share * (1 - share);
      slopes[j] += slope;
      slopes[i] -= slope;
    }
  }
  return loss;
}

PairSums lambda_pairs(Scores scores, Scores labels, PairWeights weights, std::size_t k,
                      Slopes slopes) {
  std::fill(slopes.begin(), slopes.end(), 0.0);
  const std::vector<std::size_t> order = largest_first(scores);
  std::vector<double> sorted_labels;
  for (const std::size_t document : order) sorted_labels.push_back(labels[document]);
  const Ranking ranking(sorted_labels, k);
  PairSums sums;
  const std::size_t seen = std::min(k, scores.size());
  for (std::size_t i = 0; i < seen; ++i)
    for (std::size_t j = 0; j < seen; ++j) {
      if (!(sorted_labels[i] > sorted_labels[j] || weights == PairWeights::kNdcg1)) continue;
      ++sums.pairs;
      const double share = sigmoid(scores[order[i]] - scores[order[j]]);
      const double weight = ranking.weight(weights, i, j);
      const double power = std::pow(std::max(share, kSmallest), weight);
      sums.loss -= std::log2(std::max(power, kSmallest));
      if (share < kSmallest || power < kSmallest) continue;  // a constant there
      const double slope = -weight * (1 - share) / std::numbers::ln2;
      slopes[order[i]] += slope;
      slopes[order[j]] -= slope;
    }
  return sums;
}

}  // namespace tandem::tasks::reranking
