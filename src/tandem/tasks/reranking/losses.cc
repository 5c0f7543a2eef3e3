#include "tandem/tasks/reranking/losses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/tasks/ranking/log_sum.h"
#include "tandem/tasks/reranking/list_losses.h"

namespace tandem::tasks::reranking {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// All queries of a batch in f64, after the activation.
struct Batch {
  const ScoredQueries& scored;
  std::vector<double> scores, labels, slopes;

  Scores scores_of(std::size_t query) const {
    return Scores(scores).subspan(first(query), first(query + 1) - first(query));
  }
  Scores labels_of(std::size_t query) const {
    return Scores(labels).subspan(first(query), first(query + 1) - first(query));
  }
  Slopes slopes_of(std::size_t query) {
    return Slopes(slopes).subspan(first(query), first(query + 1) - first(query));
  }

 private:
  std::size_t first(std::size_t query) const { return scored.begin[query] * scored.outputs; }
};

// The loss of a batch; its slopes are overwritten.
using BatchLoss = std::function<double(Batch&)>;

class ActivatedLoss final : public RerankingLoss {
 public:
  ActivatedLoss(bool sigmoid, BatchLoss loss) : sigmoid_(sigmoid), loss_(std::move(loss)) {}

  double loss_and_gradient(const ScoredQueries& scored, std::span<float> gradient) const override {
    Batch batch{scored,
                {scored.logits.begin(), scored.logits.end()},
                {scored.labels.begin(), scored.labels.end()},
                {}};
    batch.slopes.resize(batch.scores.size());
    if (sigmoid_)
      for (double& score : batch.scores) score = sigmoid(score);
    const double loss = loss_(batch);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double inner = sigmoid_ ? batch.scores[i] * (1 - batch.scores[i]) : 1;
      gradient[i] = static_cast<float>(batch.slopes[i] * inner);
    }
    return loss;
  }

 private:
  bool sigmoid_;
  BatchLoss loss_;
};

double binary_cross_entropy(Batch& batch, double pos_weight) {
  const auto count = static_cast<double>(batch.scores.size());
  double loss = 0;
  for (std::size_t i = 0; i < batch.scores.size(); ++i) {
    const double score = batch.scores[i], label = batch.labels[i];
    loss += (pos_weight * label * softplus(-score) + (1 - label) * softplus(score)) / count;
    batch.slopes[i] = ((1 - label) * sigmoid(score) - pos_weight * label * sigmoid(-score)) / count;
  }
  return loss;
}

// Cross entropy of each row of `width` scores; returns the mean. target(row): the right place.
template <class Target>
double cross_entropy(Scores scores, std::size_t width, Target&& target, Slopes slopes) {
  const std::size_t rows = scores.size() / width;
  double loss = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const Scores of_row = scores.subspan(row * width, width);
    const double log_sum = ranking::log_sum(of_row);
    loss += (log_sum - of_row[target(row)]) / static_cast<double>(rows);
    for (std::size_t i = 0; i < width; ++i)
      slopes[row * width + i] =
          (std::exp(of_row[i] - log_sum) - (i == target(row) ? 1 : 0)) / static_cast<double>(rows);
  }
  return loss;
}

double class_cross_entropy(Batch& batch) {
  return cross_entropy(
      batch.scores, batch.scored.outputs,
      [&](std::size_t row) { return static_cast<std::size_t>(batch.labels[row]); }, batch.slopes);
}

double mean_squared_error(Batch& batch) {
  const auto count = static_cast<double>(batch.scores.size());
  double loss = 0;
  for (std::size_t i = 0; i < batch.scores.size(); ++i) {
    const double error = batch.scores[i] - batch.labels[i];
    loss += error * error / count;
    batch.slopes[i] = 2 * error / count;
  }
  return loss;
}

// labels: [queries, negatives] margins, or [queries, 1 + negatives] scores.
double margin_squared_error(Batch& batch) {
  const std::size_t queries = batch.scored.queries(), labels = batch.labels.size() / queries;
  const auto numbers = static_cast<double>(batch.scores.size() - queries);
  double loss = 0;
  for (std::size_t query = 0; query < queries; ++query) {
    const Scores scores = batch.scores_of(query);
    const Slopes slopes = batch.slopes_of(query);
    const Scores given = Scores(batch.labels).subspan(query * labels, labels);
    slopes[0] = 0;
    for (std::size_t i = 1; i < scores.size(); ++i) {
      const double margin = labels == scores.size() ? given[0] - given[i] : given[i - 1];
      const double error = scores[0] - scores[i] - margin;
      loss += error * error / numbers;
      slopes[0] += 2 * error / numbers;
      slopes[i] = -2 * error / numbers;
    }
  }
  return loss;
}

// The first document of each query is the right one.
double first_is_right(Batch& batch, double scale) {
  double loss = 0;
  const auto queries = static_cast<double>(batch.scored.queries());
  for (std::size_t query = 0; query < batch.scored.queries(); ++query) {
    std::vector<double> scores;
    for (const double score : batch.scores_of(query)) scores.push_back(scale * score);
    const Slopes slopes = batch.slopes_of(query);
    loss += cross_entropy(
                scores, scores.size(), [](std::size_t) { return std::size_t{0}; }, slopes) /
            queries;
    for (double& slope : slopes) slope *= scale / queries;
  }
  return loss;
}

using ListLoss = std::function<double(Scores, Scores, Slopes)>;

// The sum over queries, divided by `count`.
double summed(Batch& batch, double count, const ListLoss& loss) {
  double sum = 0;
  for (std::size_t query = 0; query < batch.scored.queries(); ++query) {
    const Slopes slopes = batch.slopes_of(query);
    sum += loss(batch.scores_of(query), batch.labels_of(query), slopes) / count;
    for (double& slope : slopes) slope /= count;
  }
  return sum;
}

BatchLoss mean_over_queries(ListLoss loss) {
  return [loss = std::move(loss)](Batch& batch) {
    return summed(batch, static_cast<double>(batch.scored.queries()), loss);
  };
}

// One mean over the pairs of all queries. Without any pair, sentence-transformers has NaN; here the
// loss and its gradient are 0, because such a batch has no information about the order.
double mean_over_pairs(Batch& batch, PairWeights weights, std::size_t k) {
  PairSums all;
  for (std::size_t query = 0; query < batch.scored.queries(); ++query) {
    const PairSums sums = lambda_pairs(batch.scores_of(query), batch.labels_of(query), weights, k,
                                       batch.slopes_of(query));
    all.loss += sums.loss;
    all.pairs += sums.pairs;
  }
  if (all.pairs == 0) return 0;
  for (double& slope : batch.slopes) slope /= static_cast<double>(all.pairs);
  return all.loss / static_cast<double>(all.pairs);
}

PairWeights pair_weights(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, PairWeights>, 5> kSchemes = {
      {{"NDCGLoss2PPScheme", PairWeights::kNdcg2PlusPlus},
       {"NDCGLoss2Scheme", PairWeights::kNdcg2},
       {"NDCGLoss1Scheme", PairWeights::kNdcg1},
       {"LambdaRankScheme", PairWeights::kLambdaRank},
       {"NoWeightingScheme", PairWeights::kNone}}};
  if (name.empty()) return kSchemes.front().second;
  std::vector<std::string_view> names;
  for (const auto& [scheme, weights] : kSchemes) {
    if (scheme == name) return weights;
    names.push_back(scheme);
  }
  throw ConfigError(fmt::format("--weighting_scheme: found '{}', expected one of {}", name,
                                fmt::join(names, ", ")),
                    /*usage=*/true);
}

bool applies_sigmoid(const LossOptions& options, bool by_default) {
  if (options.activation_fn.empty()) return by_default;
  if (options.activation_fn == "sigmoid") return true;
  if (options.activation_fn == "identity") return false;
  throw ConfigError(fmt::format("--activation_fn: found '{}', expected identity or sigmoid",
                                options.activation_fn),
                    /*usage=*/true);
}

BatchLoss list_likelihood(const LossOptions& options, RankWeights weights) {
  const ListOrder order = options.respect_input_order ? ListOrder::kGiven : ListOrder::kByLabel;
  return mean_over_queries([=](Scores scores, Scores labels, Slopes slopes) {
    return list_mle(scores, labels, order, weights, slopes);
  });
}

BatchLoss pair_loss(const LossOptions& options, PairWeights weights) {
  const std::size_t k = options.k.value_or(std::numeric_limits<std::size_t>::max());
  return [=](Batch& batch) { return mean_over_pairs(batch, weights, k); };
}

void check_positive(std::string_view flag, double value) {
  if (!(value > 0) || std::isinf(value))
    throw ConfigError(fmt::format("{}: found {}, expected a positive number", flag, value),
                      /*usage=*/true);
}

void check_numbers(const LossOptions& options) {
  check_positive("--pos_weight", options.pos_weight);
  check_positive("--scale", options.scale.value_or(1));
  check_positive("--k", static_cast<double>(options.k.value_or(1)));
  check_positive("--alpha", options.alpha);
}

BatchLoss batch_loss(const LossOptions& options, std::string_view name) {
  if (name == "BinaryCrossEntropyLoss")
    return [=](Batch& batch) { return binary_cross_entropy(batch, options.pos_weight); };
  if (name == "CrossEntropyLoss") return class_cross_entropy;
  if (name == "MSELoss") return mean_squared_error;
  if (name == "MarginMSELoss") return margin_squared_error;
  if (name == "ListNetLoss") return mean_over_queries(list_net);
  if (name == "ListMLELoss") return list_likelihood(options, RankWeights::kEqual);
  if (name == "PListMLELoss") return list_likelihood(options, RankWeights::kPositionAware);
  if (name == "LambdaLoss") return pair_loss(options, pair_weights(options.weighting_scheme));
  if (name == "RankNetLoss") return pair_loss(options, PairWeights::kNone);
  if (name == "ADRMSELoss")
    return [alpha = options.alpha](Batch& batch) {
      return summed(batch, static_cast<double>(batch.scores.size()),
                    [alpha](Scores scores, Scores labels, Slopes slopes) {
                      return rank_mse(scores, labels, alpha, slopes);
                    });
    };
  return
      [scale = options.scale.value_or(10)](Batch& batch) { return first_is_right(batch, scale); };
}

}  // namespace

std::unique_ptr<RerankingLoss> make_loss(const LossOptions& options) {
  const LossNeeds& needs = loss_needs(options.name);
  check_numbers(options);
  return std::make_unique<ActivatedLoss>(applies_sigmoid(options, needs.in_batch_negatives),
                                         batch_loss(options, needs.name));
}

}  // namespace tandem::tasks::reranking
