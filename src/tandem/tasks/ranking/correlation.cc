#include "tandem/tasks/ranking/correlation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "tandem/tasks/ranking/numpy_mean.h"

namespace tandem::tasks::ranking {
namespace {

// values - mean, divided by their length; empty when they are constant.
std::vector<double> standardized(std::span<const double> values) {
  std::vector<double> result(values.begin(), values.end());
  const double mean = numpy_mean(values);
  double squares = 0;
  for (double& value : result) {
    value -= mean;
    squares += value * value;
  }
  if (!(squares > 0)) return {};
  for (double& value : result) value /= std::sqrt(squares);
  return result;
}

}  // namespace

std::vector<double> average_ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0, end; begin < order.size(); begin = end) {
    end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = static_cast<double>(begin + 1 + end) / 2;
    for (std::size_t k = begin; k < end; ++k) ranks[order[k]] = rank;
  }
  return ranks;
}

double pearson(std::span<const double> x, std::span<const double> y) {
  const std::vector<double> a = standardized(x), b = standardized(y);
  if (a.empty() || b.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(std::inner_product(a.begin(), a.end(), b.begin(), 0.0), -1.0, 1.0);
}

double spearman(std::span<const double> x, std::span<const double> y) {
  return pearson(average_ranks(x), average_ranks(y));
}

}  // namespace tandem::tasks::ranking
