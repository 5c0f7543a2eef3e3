#include "tandem/tasks/text_classification/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "tandem/core/error.h"

namespace tandem::text_classification {
namespace {

double accuracy(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) equal += predictions[i] == labels[i];
  return static_cast<double>(equal) / static_cast<double>(labels.size());
}

// 2 tp / (2 tp + fp + fn)
double f1_of_counts(std::size_t right, std::size_t predicted, std::size_t labelled) {
  if (predicted + labelled == 0) return 0;
  return 2.0 * static_cast<double>(right) / static_cast<double>(predicted + labelled);
}

double f1_of_class_1(std::span<const std::int32_t> predictions,
                     std::span<const std::int32_t> labels) {
  std::size_t right = 0, predicted = 0, labelled = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    right += predictions[i] == 1 && labels[i] == 1;
    predicted += predictions[i] == 1;
    labelled += labels[i] == 1;
  }
  return f1_of_counts(right, predicted, labelled);
}

// Gorodkin's correlation of a confusion matrix, as scikit-learn computes it.
double matthews(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels) {
  std::map<std::int32_t, double> predicted, labelled;
  double right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    predicted[predictions[i]] += 1;
    labelled[labels[i]] += 1;
    right += predictions[i] == labels[i];
  }
  const auto total = static_cast<double>(labels.size());
  double products = 0, predicted_squares = 0, labelled_squares = 0;
  for (const auto& [label, count] : predicted) {
    const auto found = labelled.find(label);
    products += count * (found == labelled.end() ? 0 : found->second);
    predicted_squares += count * count;
  }
  for (const auto& [label, count] : labelled) labelled_squares += count * count;
  const double covariance = right * total - products;
  const double denominator =
      (total * total - predicted_squares) * (total * total - labelled_squares);
  return denominator == 0 ? 0 : covariance / std::sqrt(denominator);
}

// numpy's pairwise sum over a contiguous array: blocks of up to 128 with eight accumulators.
template <class T>
T pairwise_sum(std::span<const T> values) {
  const std::size_t n = values.size();
  if (n < 8) return std::accumulate(values.begin(), values.end(), T(0));
  if (n > 128) {
    std::size_t half = n / 2;
    half -= half % 8;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  T sums[8];
  std::copy_n(values.begin(), 8, sums);
  std::size_t i = 8;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t k = 0; k < 8; ++k) sums[k] += values[i + k];
  }
  T sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

// Deviations from the mean, divided by their largest magnitude and by the norm of that, as scipy
// does to stay clear of overflow; empty when all values are equal.
template <class T>
std::vector<T> normalized(std::span<const T> values) {
  const T mean = pairwise_sum(values) / static_cast<T>(values.size());
  std::vector<T> out(values.begin(), values.end());
  T largest = 0, squares = 0;
  for (T& value : out) {
    value -= mean;
    largest = std::max(largest, std::abs(value));
  }
  if (largest == 0) return {};
  for (const T value : out) squares += (value / largest) * (value / largest);
  const T norm = largest * std::sqrt(squares);
  for (T& value : out) value /= norm;
  return out;
}

template <class T>
double correlation(std::span<const T> a, std::span<const T> b) {
  const bool constant = std::all_of(a.begin(), a.end(), [&](T v) { return v == a.front(); }) ||
                        std::all_of(b.begin(), b.end(), [&](T v) { return v == b.front(); });
  if (a.size() < 2 || constant) return std::numeric_limits<double>::quiet_NaN();
  const std::vector<T> x = normalized(a), y = normalized(b);
  if (x.empty() || y.empty()) return std::numeric_limits<double>::quiet_NaN();
  const T sum = std::inner_product(x.begin(), x.end(), y.begin(), T(0));
  return static_cast<double>(std::clamp(sum, T(-1), T(1)));
}

// From 1; equal values share the mean of their places.
std::vector<double> average_ranks(std::span<const float> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = (static_cast<double>(begin + end) + 1) / 2;
    for (; begin < end; ++begin) ranks[order[begin]] = rank;
  }
  return ranks;
}

double mean_squared_error(std::span<const float> predictions, std::span<const float> labels) {
  std::vector<double> squares(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double difference = static_cast<double>(labels[i]) - static_cast<double>(predictions[i]);
    squares[i] = difference * difference;
  }
  return pairwise_sum(std::span<const double>(squares)) / static_cast<double>(labels.size());
}

// The plain mean of several results is one more.
Metrics with_combined_score(Metrics metrics) {
  double sum = 0;
  for (const auto& [name, value] : metrics) sum += value;
  metrics.emplace_back("combined_score", sum / static_cast<double>(metrics.size()));
  return metrics;
}

void check_sizes(std::size_t predictions, std::size_t labels) {
  TANDEM_CHECK(predictions == labels && labels > 0, "{} predictions for {} labels", predictions,
               labels);
}

}  // namespace

std::vector<std::string> metric_names(MetricSet set) {
  switch (set) {
    case MetricSet::kAccuracy:
      return {"accuracy"};
    case MetricSet::kAccuracyAndF1:
      return {"accuracy", "f1", "combined_score"};
    case MetricSet::kBinaryF1:
      return {"f1"};
    case MetricSet::kMatthews:
      return {"matthews_correlation"};
    case MetricSet::kCorrelations:
      return {"pearson", "spearmanr", "combined_score"};
    case MetricSet::kMicroF1:
      return {"f1"};
    case MetricSet::kMse:
      return {"mse"};
  }
  return {};
}

// The combined score is a mean of fractions or of correlations, so it has their unit.
std::vector<tasks::LeadingMetric> reported_metrics(MetricSet set) {
  using tasks::MetricUnit;
  static const std::map<std::string, tasks::LeadingMetric> kKnown = {
      {"accuracy", {"accuracy", "Accuracy", MetricUnit::kFraction}},
      {"f1", {"f1", "F1", MetricUnit::kFraction}},
      {"combined_score", {"combined_score", "Combined score", MetricUnit::kFraction}},
      {"matthews_correlation",
       {"matthews_correlation", "Matthews correlation", MetricUnit::kNumber}},
      {"pearson", {"pearson", "Pearson correlation", MetricUnit::kNumber}},
      {"spearmanr", {"spearmanr", "Spearman correlation", MetricUnit::kNumber}},
      {"mse", {"mse", "Mean squared error", MetricUnit::kNumber, /*less_is_better=*/true}}};
  std::vector<tasks::LeadingMetric> metrics;
  for (const std::string& name : metric_names(set)) metrics.push_back(kKnown.at(name));
  if (set == MetricSet::kCorrelations) metrics.back().unit = MetricUnit::kNumber;
  return metrics;
}

Metrics class_metrics(MetricSet set, std::span<const std::int32_t> predictions,
                      std::span<const std::int32_t> labels) {
  check_sizes(predictions.size(), labels.size());
  if (set == MetricSet::kMatthews) return {{"matthews_correlation", matthews(predictions, labels)}};
  if (set == MetricSet::kAccuracy) return {{"accuracy", accuracy(predictions, labels)}};
  if (set == MetricSet::kBinaryF1) return {{"f1", f1_of_class_1(predictions, labels)}};
  TANDEM_CHECK(set == MetricSet::kAccuracyAndF1, "no metric of classes");
  return with_combined_score(
      {{"accuracy", accuracy(predictions, labels)}, {"f1", f1_of_class_1(predictions, labels)}});
}

Metrics value_metrics(MetricSet set, std::span<const float> predictions,
                      std::span<const float> labels) {
  check_sizes(predictions.size(), labels.size());
  if (set == MetricSet::kMse) return {{"mse", mean_squared_error(predictions, labels)}};
  TANDEM_CHECK(set == MetricSet::kCorrelations, "no metric of values");
  const std::vector<double> x = average_ranks(predictions), y = average_ranks(labels);
  return with_combined_score(
      {{"pearson", correlation(predictions, labels)},
       {"spearmanr", correlation(std::span<const double>(x), std::span<const double>(y))}});
}

void CellCounts::add(std::span<const float> logits, std::span<const std::int32_t> labels) {
  const auto is_predicted = [](float logit) { return logit > 0; };
  const auto found =
      static_cast<std::size_t>(std::count_if(logits.begin(), logits.end(), is_predicted));
  const auto both =
      static_cast<std::size_t>(std::count_if(labels.begin(), labels.end(), [&](std::int32_t label) {
        return is_predicted(logits[static_cast<std::size_t>(label)]);
      }));
  ++texts;
  equal_texts += both == found && both == labels.size();
  right += both;
  predicted += found;
  labelled += labels.size();
}

Metrics cell_metrics(MetricSet set, const CellCounts& counts) {
  TANDEM_CHECK(counts.texts > 0, "no texts were counted");
  if (set == MetricSet::kAccuracy) {
    return {
        {"accuracy", static_cast<double>(counts.equal_texts) / static_cast<double>(counts.texts)}};
  }
  TANDEM_CHECK(set == MetricSet::kMicroF1, "no metric of cells");
  return {{"f1", f1_of_counts(counts.right, counts.predicted, counts.labelled)}};
}

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace tandem::text_classification
