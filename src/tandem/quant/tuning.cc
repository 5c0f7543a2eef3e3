#include "tandem/quant/tuning.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tandem/core/error.h"

namespace tandem::quant {
namespace {

class Search {
 public:
  Search(double baseline, const TuningOptions& options,
         FunctionRef<double(const Configuration&)> evaluate)
      : options_(options), evaluate_(evaluate) {
    result_.baseline = baseline;
  }

  bool done() const {
    return result_.accepted ||
           (!result_.trials.empty() &&
            result_.trials.size() >= static_cast<std::size_t>(std::max(1, options_.max_trials)));
  }

  void attempt(Configuration configuration) {
    const double metric = evaluate_(configuration);
    result_.trials.push_back({std::move(configuration), metric});
    if (quality(metric) > quality(result_.trials[result_.best].metric))
      result_.best = result_.trials.size() - 1;
    result_.accepted =
        relative_drop(result_.baseline, metric, options_.greater_is_better) <= options_.tolerance;
  }

  const TuningResult& result() const { return result_; }
  // The metric with the sign that makes more better.
  double quality(double metric) const { return options_.greater_is_better ? metric : -metric; }

 private:
  TuningOptions options_;
  FunctionRef<double(const Configuration&)> evaluate_;
  TuningResult result_;
};

// The indices of `metrics`, the greatest first, equal ones in order.
std::vector<std::size_t> by_metric(const std::vector<double>& metrics) {
  std::vector<std::size_t> order(metrics.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return metrics[a] > metrics[b]; });
  return order;
}

}  // namespace

std::string_view to_string(InputRanges ranges) {
  switch (ranges) {
    case InputRanges::kLeastError:
      return "histogram";
    case InputRanges::kMinMax:
      return "min-max";
    case InputRanges::kDynamic:
      break;
  }
  return "dynamic";
}

double relative_drop(double baseline, double metric, bool greater_is_better) {
  if (!greater_is_better) return relative_drop(-baseline, -metric);
  if (baseline == metric) return 0;
  if (baseline == 0) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    return metric < 0 ? kInfinite : -kInfinite;
  }
  return (baseline - metric) / std::fabs(baseline);
}

TuningResult tune(double baseline, std::span<const InputRanges> ranges,
                  std::span<const std::string> blocks, const TuningOptions& options,
                  FunctionRef<double(const Configuration&)> evaluate) {
  TANDEM_CHECK(!ranges.empty(), "tuning without a kind of ranges");
  Search search(baseline, options, evaluate);
  for (const InputRanges kind : ranges) {
    if (!search.done()) search.attempt({.ranges = kind, .f32_blocks = {}});
  }
  const InputRanges kind = search.result().chosen().configuration.ranges;

  std::vector<double> metrics;  // with one block in f32
  for (const std::string& block : blocks) {
    if (search.done() || blocks.size() == 1) return search.result();
    search.attempt({.ranges = kind, .f32_blocks = {block}});
    metrics.push_back(search.quality(search.result().trials.back().metric));
  }

  Configuration accumulated{.ranges = kind, .f32_blocks = {}};
  for (const std::size_t index : by_metric(metrics)) {
    accumulated.f32_blocks.push_back(blocks[index]);
    if (accumulated.f32_blocks.size() < 2) continue;  // alone it has been tried
    if (search.done() || accumulated.f32_blocks.size() == blocks.size()) break;
    search.attempt(accumulated);
  }
  return search.result();
}

}  // namespace tandem::quant
