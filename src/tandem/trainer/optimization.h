// From --optim, --lr_scheduler_type and their relatives to the optimizer and the learning rate of
// each step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "tandem/nn/parameter_layout.h"
#include "tandem/optim/optimizer.h"
#include "tandem/optim/schedule.h"
#include "tandem/trainer/training_arguments.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::trainer {

// Throws ConfigError (a value out of range, an unknown key of --optim_args).
optim::OptimizerOptions optimizer_options(const TrainingArguments& arguments);
std::unique_ptr<optim::Optimizer> make_optimizer(const TrainingArguments& arguments,
                                                 const nn::ParameterLayout& layout);

// "f1" -> "eval_f1": the key under which an evaluation reports a metric.
std::string with_eval_prefix(const std::string& metric);

// The learning rate over a run: a curve of the step, or (reduce_lr_on_plateau, greedy) what the
// evaluations so far have made of it.
class LearningRate {
 public:
  // Throws ConfigError (--lr_scheduler_kwargs).
  LearningRate(const TrainingArguments& arguments, const TrainingPlan& plan);

  // The rate of update `step`, counted from 0.
  double at(std::int64_t step) const;
  // Whether the rate follows a metric; if so, measured() is called after each evaluation.
  bool follows_metric() const { return std::holds_alternative<Measured>(rate_); }
  void measured(double metric) { std::get<Measured>(rate_)->measured(metric); }

  // The state saved in a checkpoint; unset for a curve.
  std::optional<optim::MetricSchedule::State> state() const;
  void restore(const std::optional<optim::MetricSchedule::State>& state);

 private:
  using Measured = std::unique_ptr<optim::MetricSchedule>;

  double peak_;
  std::variant<optim::Schedule, Measured> rate_;
};

}  // namespace tandem::trainer
