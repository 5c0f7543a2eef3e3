// Learning-rate schedules: the curves of transformers.get_scheduler, ReduceLROnPlateau, GreedyLR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/enum_name.h"

namespace tandem::optim {

// The values of --lr_scheduler_type, in the order of kScheduleTypeNames.
enum class ScheduleType {
  kLinear,
  kConstant,
  kConstantWithWarmup,
  kCosine,
  kCosineWithRestarts,
  kPolynomial,
  kInverseSqrt,
  kCosineWithMinLr,
  kCosineWarmupWithMinLr,
  kWarmupStableDecay,
  kReduceLrOnPlateau,
  kGreedy,
};

inline constexpr std::string_view kScheduleTypeNames[] = {"linear",
                                                          "constant",
                                                          "constant_with_warmup",
                                                          "cosine",
                                                          "cosine_with_restarts",
                                                          "polynomial",
                                                          "inverse_sqrt",
                                                          "cosine_with_min_lr",
                                                          "cosine_warmup_with_min_lr",
                                                          "warmup_stable_decay",
                                                          "reduce_lr_on_plateau",
                                                          "greedy"};
inline EnumNames enum_names(ScheduleType) { return kScheduleTypeNames; }
inline std::string_view to_string(ScheduleType type) {
  return kScheduleTypeNames[static_cast<std::size_t>(type)];
}

// Whether the rate follows the evaluations instead of a curve (MetricSchedule).
inline bool follows_metric(ScheduleType type) {
  return type == ScheduleType::kReduceLrOnPlateau || type == ScheduleType::kGreedy;
}

// How warmup_stable_decay goes up and down: "linear", "cosine", "1-sqrt".
enum class Ramp { kLinear, kCosine, kOneMinusSqrt };

// --lr_scheduler_kwargs of the types that are pure functions of the step. Each type takes some of
// them: get_scheduler's keyword arguments.
struct ScheduleOptions {
  std::optional<double> num_cycles;      // cosines: unset 0.5; cosine_with_restarts: unset 1
  double lr_end = 1e-7;                  // polynomial: the last rate
  double power = 1.0;                    // polynomial
  std::optional<double> timescale;       // inverse_sqrt; unset: the warm-up, or 10,000 without one
  std::optional<double> min_lr;          // cosine_with_min_lr, cosine_warmup_with_min_lr
  std::optional<double> min_lr_rate;     // the same as a share of the peak
  std::optional<double> warmup_lr_rate;  // cosine_warmup_with_min_lr: where warm-up begins
  std::optional<std::uint64_t> num_decay_steps;   // warmup_stable_decay, required
  std::optional<std::uint64_t> num_stable_steps;  // unset: what warm-up and decay leave
  Ramp warmup_type = Ramp::kLinear;
  Ramp decay_type = Ramp::kCosine;
  double min_lr_ratio = 0;
};

// --lr_scheduler_kwargs of reduce_lr_on_plateau: torch.optim.lr_scheduler.ReduceLROnPlateau.
struct PlateauOptions {
  std::optional<bool> greater_is_better;  // "mode": max or min; unset: the caller's choice
  double factor = 0.1;
  std::uint64_t patience = 10;
  double threshold = 1e-4;
  bool relative = true;  // "threshold_mode": rel or abs
  std::uint64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
};

// --lr_scheduler_kwargs of greedy: transformers.optimization.GreedyLR.
struct GreedyOptions {
  std::optional<bool> greater_is_better;  // "mode": max or min; unset: the caller's choice
  double factor = 0.95;
  std::uint64_t patience = 10;
  double threshold = 1e-6;
  bool relative = false;  // "threshold_mode": rel or abs
  std::uint64_t cooldown = 0;
  std::uint64_t warmup = 0;
  double min_lr = 1e-3;
  double max_lr = 1.0;
  double eps = 1e-8;
  bool smooth = false;  // the metric is the mean of the last window_size
  std::uint64_t window_size = 50;
  std::uint64_t reset_start = 500;
};

// A curve over the steps of a run: a pure function, so a resumed run needs only the step number.
struct Schedule {
  ScheduleType type = ScheduleType::kLinear;
  std::uint64_t total_steps = 0;
  std::uint64_t warmup_steps = 0;
  double learning_rate = 1;  // the peak, which lr_end and min_lr are shares of
  ScheduleOptions options = {};

  // The factor of the peak in update `step`, counted from 0 at the first update. T total, w
  // warm-up, c cycles, x = (step − w)/(T − w) behind the warm-up, which is step/w:
  //   linear                1 − x, at least 0
  //   constant              1, without warm-up;  constant_with_warmup: 1
  //   cosine                (1 + cos 2πcx)/2;  cosine_with_min_lr: scaled into [min, 1]
  //   cosine_with_restarts  (1 + cos π(cx mod 1))/2
  //   cosine_warmup_with_min_lr  as cosine_with_min_lr, one step ahead
  //   polynomial            from 1 to lr_end as (1 − x)^power
  //   inverse_sqrt          1/sqrt((step − w + timescale)/timescale)
  //   warmup_stable_decay   up from min_lr_ratio, 1, and down to it
  //   reduce_lr_on_plateau, greedy  1 (the rest is in MetricSchedule)
  double factor(std::uint64_t step) const;
};

// Reads --lr_scheduler_kwargs for `type`, which follows no metric. Numbers may be texts. Throws
// ConfigError that names the key, what was found and what the type takes.
ScheduleOptions parse_schedule_options(ScheduleType type, const nlohmann::json& kwargs,
                                       double learning_rate);
PlateauOptions parse_plateau_options(const nlohmann::json& kwargs);
GreedyOptions parse_greedy_options(const nlohmann::json& kwargs);

// A learning rate that follows the metric of the evaluations.
class MetricSchedule {
 public:
  // State saved in a checkpoint.
  struct State {
    double learning_rate = 0;
    std::optional<double> best;  // unset: nothing measured yet
    std::uint64_t num_bad = 0;
    std::uint64_t cooldown_left = 0;
    // Used by greedy alone.
    std::uint64_t num_good = 0;
    std::uint64_t warmup_left = 0;
    std::int64_t reset_left = 0;  // reductions at min_lr before everything begins anew
    std::vector<double> window;   // the last metrics, oldest first, with smooth
    double window_sum = 0;
  };

  virtual ~MetricSchedule() = default;

  double learning_rate() const { return state_.learning_rate; }
  // After each evaluation.
  virtual void measured(double metric) = 0;

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 protected:
  explicit MetricSchedule(double learning_rate) { state_.learning_rate = learning_rate; }
  State state_;
};

// reduce_lr_on_plateau: falls when a metric has stopped improving for more than `patience`
// evaluations.
class PlateauSchedule : public MetricSchedule {
 public:
  PlateauSchedule(const PlateauOptions& options, bool greater_is_better, double learning_rate);
  void measured(double metric) override;

 private:
  PlateauOptions options_;
  bool greater_is_better_;
};

// greedy: rises by 1/factor when the metric improved more than `patience` times running, falls by
// factor when it did not as often, and begins anew after reset_start reductions at min_lr.
class GreedySchedule : public MetricSchedule {
 public:
  GreedySchedule(const GreedyOptions& options, bool greater_is_better, double learning_rate);
  void measured(double metric) override;

 private:
  double smoothed(double metric);
  void count(double metric);
  void increase();
  void reduce();
  void reset();

  GreedyOptions options_;
  bool greater_is_better_;
  double initial_learning_rate_;
};

// torch.nn.utils.clip_grad_norm_: max_norm/(norm + 1e-6) if that is < 1, else 1. max_norm <= 0: no
// clipping. A norm that is not finite gives NaN or 0, as in torch.
double clip_factor(double norm, double max_norm);

}  // namespace tandem::optim
