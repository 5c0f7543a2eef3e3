#include "tandem/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "tandem/core/error.h"

namespace tandem::optim {
namespace {

struct TypeName {
  std::string_view name;
  ScheduleType type;
};

constexpr std::array kTypeNames = {
    TypeName{"linear", ScheduleType::kLinear}, TypeName{"constant", ScheduleType::kConstant},
    TypeName{"constant_with_warmup", ScheduleType::kConstantWithWarmup}};

}  // namespace

std::string_view to_string(ScheduleType type) {
  return kTypeNames[static_cast<std::size_t>(type)].name;
}

ScheduleType parse_schedule_type(std::string_view name) {
  std::string known;
  for (const TypeName& entry : kTypeNames) {
    if (entry.name == name) return entry.type;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  raise<ConfigError>("--lr_scheduler_type is {}; expected one of {}", name, known);
}

double Schedule::factor(std::uint64_t step) const {
  if (type == ScheduleType::kConstant) return 1.0;
  if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (type == ScheduleType::kConstantWithWarmup) return 1.0;
  const std::uint64_t left = step < total_steps ? total_steps - step : 0;
  const std::uint64_t decay = total_steps > warmup_steps ? total_steps - warmup_steps : 1;
  return static_cast<double>(left) / static_cast<double>(decay);
}

std::uint64_t resolve_warmup_steps(std::uint64_t warmup_steps, double warmup_ratio,
                                   std::uint64_t total_steps) {
  if (warmup_steps > 0) return warmup_steps;
  return static_cast<std::uint64_t>(std::ceil(warmup_ratio * static_cast<double>(total_steps)));
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0;
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1.0 ? 1.0 : factor;  // a NaN norm stays NaN
}

}  // namespace tandem::optim
