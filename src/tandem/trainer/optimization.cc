#include "tandem/trainer/optimization.h"

#include "tandem/core/json.h"

namespace tandem::trainer {

optim::OptimizerOptions optimizer_options(const TrainingArguments& arguments) {
  optim::OptimizerOptions options = {.name = arguments.optim,
                                     .weight_decay = arguments.weight_decay,
                                     .beta1 = arguments.adam_beta1,
                                     .beta2 = arguments.adam_beta2,
                                     .epsilon = arguments.adam_epsilon};
  options.rates = optim::parse_rate_rules(arguments.learning_rate_mapping, arguments.learning_rate);
  optim::parse_optimizer_arguments(arguments.optim_args, options);
  options.validate();
  return options;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainingArguments& arguments,
                                                 const nn::ParameterLayout& layout) {
  return optim::make_optimizer(optimizer_options(arguments), layout);
}

std::string with_eval_prefix(const std::string& metric) {
  return metric.starts_with("eval_") ? metric : "eval_" + metric;
}

LearningRate::LearningRate(const TrainingArguments& arguments, const TrainingPlan& plan)
    : peak_(arguments.learning_rate) {
  const LrSchedulerType type = arguments.lr_scheduler_type;
  const auto kwargs = nlohmann::json::parse(arguments.lr_scheduler_kwargs);
  const bool greater = arguments.greater_is_better.value_or(true);
  if (type == LrSchedulerType::kReduceLrOnPlateau) {
    rate_ = std::make_unique<optim::PlateauSchedule>(optim::parse_plateau_options(kwargs), greater,
                                                     peak_);
  } else if (type == LrSchedulerType::kGreedy) {
    rate_ = std::make_unique<optim::GreedySchedule>(optim::parse_greedy_options(kwargs), greater,
                                                    peak_);
  } else {
    rate_ = optim::Schedule{.type = type,
                            .total_steps = static_cast<std::uint64_t>(plan.total_steps),
                            .warmup_steps = static_cast<std::uint64_t>(plan.warmup_steps),
                            .learning_rate = peak_,
                            .options = optim::parse_schedule_options(type, kwargs, peak_)};
  }
}

double LearningRate::at(std::int64_t step) const {
  if (follows_metric()) return std::get<Measured>(rate_)->learning_rate();
  return peak_ * std::get<optim::Schedule>(rate_).factor(static_cast<std::uint64_t>(step));
}

std::optional<optim::MetricSchedule::State> LearningRate::state() const {
  if (!follows_metric()) return std::nullopt;
  return std::get<Measured>(rate_)->state();
}

void LearningRate::restore(const std::optional<optim::MetricSchedule::State>& state) {
  if (follows_metric() && state) std::get<Measured>(rate_)->restore(*state);
}

}  // namespace tandem::trainer
