#include "tandem/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::optim {
namespace {

// From 1 at x = 0 to 0 after half a cycle.
double half_cosine(double x) { return 0.5 * (1.0 + std::cos(std::numbers::pi * x)); }

double between(double low, double share) { return share * (1.0 - low) + low; }

// From 0 to 1.
double ramp_up(Ramp ramp, double x) {
  switch (ramp) {
    case Ramp::kLinear:
      return x;
    case Ramp::kCosine:
      return 0.5 * (1.0 - std::cos(std::numbers::pi * x));
    case Ramp::kOneMinusSqrt:
      return 1.0 - std::sqrt(1.0 - x);
  }
  return x;
}

// From 1 to 0.
double ramp_down(Ramp ramp, double x, double cycles) {
  switch (ramp) {
    case Ramp::kLinear:
      return 1.0 - x;
    case Ramp::kCosine:
      return half_cosine(cycles * 2.0 * x);
    case Ramp::kOneMinusSqrt:
      return 1.0 - std::sqrt(x);
  }
  return 1.0 - x;
}

double at_least_one(double x) { return std::max(1.0, x); }

double polynomial(const Schedule& s, double step, double total, double warmup) {
  const double end = s.options.lr_end;
  if (step > total) return end / s.learning_rate;
  const double remaining = 1.0 - (step - warmup) / (total - warmup);
  return ((s.learning_rate - end) * std::pow(remaining, s.options.power) + end) / s.learning_rate;
}

double minimum_share(const Schedule& s) {
  return s.options.min_lr ? *s.options.min_lr / s.learning_rate : s.options.min_lr_rate.value_or(0);
}

double cosine_warmup_with_min_lr(const Schedule& s, double step, double total, double warmup) {
  if (step < warmup) {
    if (!s.options.warmup_lr_rate) return (step + 1.0) / at_least_one(warmup);
    const double start = *s.options.warmup_lr_rate;
    return start + (1.0 - start) * step / at_least_one(warmup - 1.0);
  }
  const double progress = (step - warmup + 1.0) / at_least_one(total - warmup);
  const double cycles = s.options.num_cycles.value_or(0.5);
  return std::max(0.0, between(minimum_share(s), half_cosine(cycles * 2.0 * progress)));
}

double warmup_stable_decay(const Schedule& s, double step, double total, double warmup) {
  const ScheduleOptions& o = s.options;
  const auto decay = static_cast<double>(o.num_decay_steps.value_or(0));
  const double stable =
      o.num_stable_steps ? static_cast<double>(*o.num_stable_steps) : total - warmup - decay;
  if (step < warmup) {
    const double up = ramp_up(o.warmup_type, step / at_least_one(warmup));
    return std::max(0.0, between(o.min_lr_ratio, up));
  }
  if (step < warmup + stable) return 1.0;
  if (step >= warmup + stable + decay) return o.min_lr_ratio;
  const double down = ramp_down(o.decay_type, (step - warmup - stable) / at_least_one(decay),
                                o.num_cycles.value_or(0.5));
  return std::max(0.0, between(o.min_lr_ratio, down));
}

}  // namespace

double Schedule::factor(std::uint64_t step_number) const {
  const auto step = static_cast<double>(step_number);
  const auto total = static_cast<double>(total_steps);
  const auto warmup = static_cast<double>(warmup_steps);
  switch (type) {
    case ScheduleType::kConstant:
    case ScheduleType::kReduceLrOnPlateau:
    case ScheduleType::kGreedy:
      return 1.0;
    case ScheduleType::kCosineWarmupWithMinLr:
      return cosine_warmup_with_min_lr(*this, step, total, warmup);
    case ScheduleType::kWarmupStableDecay:
      return warmup_stable_decay(*this, step, total, warmup);
    default:
      break;
  }
  if (step < warmup) return step / at_least_one(warmup);
  const double progress = (step - warmup) / at_least_one(total - warmup);
  switch (type) {
    case ScheduleType::kConstantWithWarmup:
      return 1.0;
    case ScheduleType::kCosine:
    case ScheduleType::kCosineWithMinLr:
      return std::max(0.0, between(minimum_share(*this),
                                   half_cosine(options.num_cycles.value_or(0.5) * 2.0 * progress)));
    case ScheduleType::kCosineWithRestarts:
      if (progress >= 1.0) return 0.0;
      return std::max(0.0,
                      half_cosine(std::fmod(options.num_cycles.value_or(1.0) * progress, 1.0)));
    case ScheduleType::kPolynomial:
      return polynomial(*this, step, total, warmup);
    case ScheduleType::kInverseSqrt: {
      const double scale = options.timescale.value_or(warmup > 0 ? warmup : 10'000.0);
      return 1.0 / std::sqrt((step + (scale - warmup)) / scale);
    }
    default:  // linear
      return std::max(0.0, (total - step) / at_least_one(total - warmup));
  }
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0;
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1.0 ? 1.0 : factor;  // a NaN norm stays NaN
}

}  // namespace tandem::optim
