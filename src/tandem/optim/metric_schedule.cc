// The schedules that follow a metric, as torch and transformers compute them.
#include <algorithm>
#include <cmath>

#include "tandem/optim/schedule.h"

namespace tandem::optim {
namespace {

bool better(double metric, std::optional<double> best, bool greater_is_better, bool relative,
            double threshold) {
  if (!best) return std::isfinite(metric);
  const double sign = greater_is_better ? 1.0 : -1.0;
  const double limit = relative ? *best * (1.0 + sign * threshold) : *best + sign * threshold;
  return greater_is_better ? metric > limit : metric < limit;
}

}  // namespace

PlateauSchedule::PlateauSchedule(const PlateauOptions& options, bool greater_is_better,
                                 double learning_rate)
    : MetricSchedule(learning_rate),
      options_(options),
      greater_is_better_(options.greater_is_better.value_or(greater_is_better)) {}

void PlateauSchedule::measured(double metric) {
  if (better(metric, state_.best, greater_is_better_, options_.relative, options_.threshold)) {
    state_.best = metric;
    state_.num_bad = 0;
  } else {
    ++state_.num_bad;
  }
  if (state_.cooldown_left > 0) {
    --state_.cooldown_left;
    state_.num_bad = 0;
  }
  if (state_.num_bad <= options_.patience) return;
  const double lower = std::max(state_.learning_rate * options_.factor, options_.min_lr);
  if (state_.learning_rate - lower > options_.eps) state_.learning_rate = lower;
  state_.cooldown_left = options_.cooldown;
  state_.num_bad = 0;
}

GreedySchedule::GreedySchedule(const GreedyOptions& options, bool greater_is_better,
                               double learning_rate)
    : MetricSchedule(learning_rate),
      options_(options),
      greater_is_better_(options.greater_is_better.value_or(greater_is_better)),
      initial_learning_rate_(learning_rate) {
  state_.reset_left = static_cast<std::int64_t>(options.reset_start);
}

double GreedySchedule::smoothed(double metric) {
  if (!options_.smooth) return metric;
  state_.window.push_back(metric);
  state_.window_sum += metric;
  if (state_.window.size() > options_.window_size) {
    state_.window_sum -= state_.window.front();
    state_.window.erase(state_.window.begin());
  }
  return state_.window_sum / static_cast<double>(state_.window.size());
}

void GreedySchedule::count(double metric) {
  if (better(metric, state_.best, greater_is_better_, options_.relative, options_.threshold)) {
    state_.best = metric;
    state_.num_bad = 0;
    ++state_.num_good;
  } else {
    ++state_.num_bad;
    state_.num_good = 0;
  }
}

void GreedySchedule::measured(double metric) {
  const double current = smoothed(metric);
  std::uint64_t& pause = state_.cooldown_left > 0 ? state_.cooldown_left : state_.warmup_left;
  if (pause > 0) {
    --pause;
    state_.num_bad = 0;
    state_.num_good = 0;
    return;
  }
  count(current);
  if (state_.num_good > options_.patience) {
    increase();
    state_.warmup_left = options_.warmup;
    state_.num_good = 0;
  } else if (state_.num_bad > options_.patience) {
    reduce();
    state_.cooldown_left = options_.cooldown;
    state_.num_bad = 0;
  }
}

void GreedySchedule::increase() {
  const double higher = std::min(state_.learning_rate / options_.factor, options_.max_lr);
  if (higher - state_.learning_rate > options_.eps) state_.learning_rate = higher;
  state_.reset_left = static_cast<std::int64_t>(options_.reset_start);
}

void GreedySchedule::reduce() {
  const double lower = std::max(state_.learning_rate * options_.factor, options_.min_lr);
  if (state_.learning_rate - lower > options_.eps) state_.learning_rate = lower;
  if (state_.learning_rate > options_.min_lr) return;
  if (--state_.reset_left <= 0) reset();
}

void GreedySchedule::reset() {
  state_ = {};
  state_.learning_rate = initial_learning_rate_;
  state_.reset_left = static_cast<std::int64_t>(options_.reset_start);
}

}  // namespace tandem::optim
