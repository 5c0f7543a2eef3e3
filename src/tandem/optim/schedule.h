// Learning-rate schedules and gradient clipping: pure functions, so a resumed run needs only the
// step number.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem::optim {

enum class ScheduleType { kLinear, kConstant, kConstantWithWarmup };

// "linear", "constant", "constant_with_warmup" (values of --lr_scheduler_type). parse throws
// ConfigError naming the choices.
std::string_view to_string(ScheduleType type);
ScheduleType parse_schedule_type(std::string_view name);

struct Schedule {
  ScheduleType type = ScheduleType::kLinear;
  std::uint64_t total_steps = 0;
  std::uint64_t warmup_steps = 0;

  // What the base learning rate is multiplied with in update `step`, counted from 0 at the first
  // update.
  //   linear: step/warmup, then (total − step)/(total − warmup), at least 0; constant: 1;
  //   constant_with_warmup: step/warmup, then 1.
  double factor(std::uint64_t step) const;
};

// --warmup_steps wins if > 0, else ceil(warmup_ratio · total_steps).
std::uint64_t resolve_warmup_steps(std::uint64_t warmup_steps, double warmup_ratio,
                                   std::uint64_t total_steps);

// torch.nn.utils.clip_grad_norm_: max_norm/(norm + 1e-6) if that is < 1, else 1. max_norm <= 0: no
// clipping. A norm that is not finite gives NaN or 0, as in torch.
double clip_factor(double norm, double max_norm);

}  // namespace tandem::optim
