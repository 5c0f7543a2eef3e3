// Learning-rate schedules: the curves of transformers.get_scheduler, and ReduceLROnPlateau.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

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
                                                          "reduce_lr_on_plateau"};
inline std::string_view to_string(ScheduleType type) {
  return kScheduleTypeNames[static_cast<std::size_t>(type)];
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

// A curve over the steps of a run: a pure function, so a resumed run needs only the step number.
struct Schedule {
  ScheduleType type = ScheduleType::kLinear;
  std::uint64_t total_steps = 0;
  std::uint64_t warmup_steps = 0;
  double learning_rate = 1;  // the peak, which lr_end and min_lr are shares of
  ScheduleOptions options = {};

  // What the peak is multiplied with in update `step`, counted from 0 at the first update. T total,
  // w warm-up, c cycles, x = (step − w)/(T − w) behind the warm-up, which is step/w:
  //   linear                1 − x, at least 0
  //   constant              1, without warm-up;  constant_with_warmup: 1
  //   cosine                (1 + cos 2πcx)/2;  cosine_with_min_lr: scaled into [min, 1]
  //   cosine_with_restarts  (1 + cos π(cx mod 1))/2
  //   cosine_warmup_with_min_lr  as cosine_with_min_lr, one step ahead
  //   polynomial            from 1 to lr_end as (1 − x)^power
  //   inverse_sqrt          1/sqrt((step − w + timescale)/timescale)
  //   warmup_stable_decay   up from min_lr_ratio, 1, and down to it
  //   reduce_lr_on_plateau  1 (PlateauSchedule says the rest)
  double factor(std::uint64_t step) const;
};

// Reads --lr_scheduler_kwargs for `type` (not reduce_lr_on_plateau). Numbers may be texts. Throws
// ConfigError that names the key, what was found and what the type takes.
ScheduleOptions parse_schedule_options(ScheduleType type, const nlohmann::json& kwargs,
                                       double learning_rate);
PlateauOptions parse_plateau_options(const nlohmann::json& kwargs);

// The learning rate of reduce_lr_on_plateau: falls when a metric has stopped improving for more
// than `patience` evaluations.
class PlateauSchedule {
 public:
  // What a checkpoint keeps.
  struct State {
    double learning_rate = 0;
    std::optional<double> best;  // unset: nothing measured yet
    std::uint64_t num_bad = 0;
    std::uint64_t cooldown_left = 0;
  };

  PlateauSchedule(const PlateauOptions& options, bool greater_is_better, double learning_rate);

  double learning_rate() const { return state_.learning_rate; }
  // After each evaluation.
  void measured(double metric);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  bool better(double metric) const;

  PlateauOptions options_;
  bool greater_is_better_;
  State state_;
};

// torch.nn.utils.clip_grad_norm_: max_norm/(norm + 1e-6) if that is < 1, else 1. max_norm <= 0: no
// clipping. A norm that is not finite gives NaN or 0, as in torch.
double clip_factor(double norm, double max_norm);

}  // namespace tandem::optim
