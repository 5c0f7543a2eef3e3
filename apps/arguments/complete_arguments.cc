#include "apps/arguments/complete_arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "apps/arguments/flags.h"
#include "tandem/core/enum_name.h"
#include "tandem/flags/suggest.h"
#include "tandem/trainer/optimization.h"

namespace tandem::apps {
namespace {

using trainer::IntervalStrategy;
using trainer::SaveStrategy;
using trainer::TrainingArguments;

// Whether a is a whole multiple of b; shares are compared in millionths, as transformers does.
bool is_multiple(double a, double b) {
  const double scale = a < 1 || b < 1 ? 1e6 : 1;
  return std::fmod(std::round(a * scale), std::round(b * scale)) == 0;
}

void check_whole_or_share(std::string_view name, double steps) {
  if (steps > 1 && std::floor(steps) != steps) {
    raise<ConfigError>("--{} {}: must be a whole number, or a share of all steps below 1", name,
                       steps);
  }
}

std::string plain(double value) {
  return std::floor(value) == value ? fmt::format("{}", static_cast<std::int64_t>(value))
                                    : fmt::format("{}", value);
}

void finish_intervals(TrainingArguments& training) {
  check_whole_or_share("logging_steps", training.logging_steps);
  check_whole_or_share("save_steps", training.save_steps);
  if (training.eval_on_start) training.do_eval = true;
  if (training.logging_strategy == IntervalStrategy::kSteps && training.logging_steps == 0) {
    raise<ConfigError>(
        "--logging_strategy steps needs --logging_steps above 0; to log nothing give "
        "--logging_strategy no");
  }
  if (training.eval_strategy == IntervalStrategy::kNo) return;
  training.do_eval = true;
  if (training.eval_strategy != IntervalStrategy::kSteps) return;
  if (training.eval_steps.value_or(0) == 0) {
    if (training.logging_steps == 0) {
      raise<ConfigError>("--eval_strategy steps needs --eval_steps or --logging_steps above 0");
    }
    training.eval_steps = training.logging_steps;
  }
  check_whole_or_share("eval_steps", *training.eval_steps);
}

// Finds mistakes in the settings of optimizer and schedule before anything is loaded.
void check_optimization(TrainingArguments& training, std::vector<std::string>& notes) {
  trainer::optimizer_options(training);
  const trainer::LearningRate rate(training, {});
  if (rate.follows_metric()) {
    if (training.eval_strategy == IntervalStrategy::kNo) {
      raise<ConfigError>(
          "--lr_scheduler_type {} needs evaluation during training: give --eval_strategy steps or "
          "epoch",
          enum_name(training.lr_scheduler_type));
    }
    const bool has_mode = Json::parse(training.lr_scheduler_kwargs).contains("mode");
    if (!has_mode) {
      notes.push_back(
          fmt::format("--lr_scheduler_type {}: {} {} is better (Hugging Face would take mode min; "
                      "--lr_scheduler_kwargs sets it)",
                      enum_name(training.lr_scheduler_type),
                      *training.greater_is_better ? "a greater" : "a smaller",
                      *training.metric_for_best_model));
    }
  }
  if (!training.optim_args.empty()) {
    notes.push_back(fmt::format("--optim_args: {} uses them, which Hugging Face's Trainer does not",
                                enum_name(training.optim)));
  }
}

void check_metric_name(std::string_view flag, const std::string& metric,
                       const tasks::TaskArguments& task) {
  const std::vector<std::string> metrics = task.metrics();
  const std::string name = metric.starts_with("eval_") ? metric.substr(5) : metric;
  if (std::find(metrics.begin(), metrics.end(), name) != metrics.end()) return;
  const auto suggestion = flags::nearest(name, metrics);
  raise<ConfigError>(
      "--{} {}: evaluation does not measure it; choose one of {}{}{}", flag, metric,
      fmt::join(metrics, ", "), suggestion ? fmt::format(" (did you mean {}?)", *suggestion) : "",
      name == "loss" ? fmt::format(" ({}'s evaluation has no loss)", task.command()) : "");
}

// A checkpoint of the best evaluation can only be loaded when there is a checkpoint of every
// evaluation.
void check_best_model_intervals(const TrainingArguments& training) {
  if (training.save_strategy == SaveStrategy::kBest) return;
  if (static_cast<int>(training.eval_strategy) != static_cast<int>(training.save_strategy)) {
    raise<ConfigError>(
        "--load_best_model_at_end needs the same --eval_strategy and --save_strategy, found {} and "
        "{}",
        enum_name(training.eval_strategy), enum_name(training.save_strategy));
  }
  if (training.eval_strategy != IntervalStrategy::kSteps) return;
  const double evaluate = *training.eval_steps, save = training.save_steps;
  const bool mixed = (evaluate < 1) != (save < 1);
  if (mixed || !is_multiple(save, evaluate)) {
    raise<ConfigError>(
        "--load_best_model_at_end needs --save_steps to be a multiple of --eval_steps{}, found {} "
        "and {}",
        mixed ? ", both as counts or both as shares" : "", plain(save), plain(evaluate));
  }
}

void finish_best_model(TrainingArguments& training, const tasks::TaskArguments& task,
                       std::vector<std::string>& notes) {
  const bool follows_metric = optim::follows_metric(training.lr_scheduler_type);
  const bool saves_best = training.save_strategy == SaveStrategy::kBest;
  if (!training.load_best_model_at_end && !saves_best && !follows_metric) {
    if (training.metric_for_best_model) {
      check_metric_name("metric_for_best_model", *training.metric_for_best_model, task);
      if (!training.greater_is_better)
        training.greater_is_better = task.greater_is_better(*training.metric_for_best_model);
    }
    return;
  }
  const std::string asked_by =
      training.load_best_model_at_end ? "--load_best_model_at_end"
      : saves_best                    ? "--save_strategy best"
                   : fmt::format("--lr_scheduler_type {}", enum_name(training.lr_scheduler_type));
  if (training.load_best_model_at_end) check_best_model_intervals(training);
  if (training.eval_strategy == IntervalStrategy::kNo) {
    raise<ConfigError>("{} needs evaluation during training: give --eval_strategy steps or epoch",
                       asked_by);
  }
  if (!training.metric_for_best_model) {
    training.metric_for_best_model = task.default_metric();
    notes.push_back(fmt::format("{} compares {}; --metric_for_best_model names another metric",
                                asked_by, *training.metric_for_best_model));
  }
  check_metric_name("metric_for_best_model", *training.metric_for_best_model, task);
  if (!training.greater_is_better) {
    training.greater_is_better = task.greater_is_better(*training.metric_for_best_model);
  }
}

// A line for each setting of quantization that asks for something and cannot change anything.
void note_settings_without_quantization(quant::QuantizationArguments& quantization,
                                        std::vector<std::string>& notes) {
  const flags::ArgumentParts parts(quantization);
  for (const Flag& flag : quantization_flags()) {
    if (flag.binding.get == nullptr || flag.binding.get(parts) == flag.initial) continue;
    if (!quantization.apply_quantization) {
      notes.push_back(
          fmt::format("--{} belongs to --apply_quantization, which is not given", flag.name));
    } else if (flag.name == "num_calibration_samples" &&
               quantization.quantization_approach == quant::Approach::kDynamic) {
      notes.emplace_back(
          "--num_calibration_samples has no effect: --quantization_approach dynamic measures no "
          "ranges beforehand");
    }
  }
}

// Checks the flags that --apply_quantization requires, as the original does.
void finish_quantization(job::Arguments& arguments, const tasks::TaskArguments& task,
                         std::vector<std::string>& notes) {
  quant::QuantizationArguments& quantization = arguments.quantization;
  TrainingArguments& training = arguments.training;
  note_settings_without_quantization(quantization, notes);
  if (!quantization.apply_quantization) return;
  if (!training.do_eval) {
    raise<ConfigError>(
        "--apply_quantization needs --do_eval: the int8 model is accepted by its evaluation");
  }
  if (quantization.quantization_approach == quant::Approach::kStatic && !training.do_train) {
    raise<ConfigError>(
        "--quantization_approach static needs --do_train and its file, whose first features are "
        "calibrated on (nothing is trained); --quantization_approach dynamic needs neither");
  }
  if (quantization.train_before_quantization && !training.do_train) {
    raise<ConfigError>("--train_before_quantization needs --do_train and its file");
  }
  if (!training.save_safetensors) {
    raise<ConfigError>(
        "--save_safetensors false: an int8 model is written as safetensors only; leave the flag "
        "out, or --apply_quantization");
  }
  if (quantization.metric) check_metric_name("metric", *quantization.metric, task);
  if (training.bf16 && !arguments.trains()) {
    training.bf16 = false;
    notes.emplace_back(
        "--bf16 has no effect: --apply_quantization calibrates and evaluates in f32; "
        "give it to the jobs that use the int8 model");
  }
}

// A line for each flag of adapters without --use_peft, and the combinations that do not work.
void finish_lora(job::Arguments& arguments, std::vector<std::string>& notes) {
  const flags::ArgumentParts parts(arguments.lora);
  if (!arguments.lora.use_peft) {
    for (const Flag& flag : lora_flags()) {
      if (flag.binding.get == nullptr || flag.binding.get(parts) == flag.initial) continue;
      notes.push_back(fmt::format("--{} belongs to --use_peft, which is not given", flag.name));
    }
    return;
  }
  if (arguments.quantization.apply_quantization) {
    raise<ConfigError>(
        "--use_peft with --apply_quantization: adapters are not quantized; train, then tandem "
        "merge, then quantize the merged model");
  }
  if (!arguments.training.save_safetensors) {
    raise<ConfigError>(
        "--save_safetensors false: adapters are written as safetensors only; leave the flag out");
  }
}

// The integrations of transformers, whose services and packages a program without Python lacks.
constexpr std::string_view kPythonIntegrations[] = {
    "azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte",
    "kubeflow", "mlflow",  "neptune",    "swanlab",  "trackio", "wandb"};

[[noreturn]] void refuse_integration(const std::string& name) {
  const bool of_python = std::find(std::begin(kPythonIntegrations), std::end(kPythonIntegrations),
                                   name) != std::end(kPythonIntegrations);
  raise<ConfigError>(
      "--report_to{}: found {}, expected tensorboard, all or none; use --report_to tensorboard, "
      "or none: output_dir gets report.html, report.json and trainer_state.json either way",
      name.empty() ? "" : " " + name,
      name.empty() ? "an empty value"
      : of_python  ? "an integration that needs Python"
                   : "no integration of this name");
}

// report_to is a list of integrations; what is left of it is {"tensorboard"} or nothing. `all` is
// every integration that is available, as in transformers; `none` and `all` stand alone there.
void choose_integrations(TrainingArguments& training) {
  bool tensorboard = false;
  for (const std::string& name : training.report_to) {
    const bool group = name == "none" || name == "all";
    if (group && training.report_to.size() > 1) {
      raise<ConfigError>(
          "--report_to {}: found {} among {} values, expected it alone; give {} or the names of "
          "integrations",
          fmt::join(training.report_to, " "), name, training.report_to.size(), name);
    }
    if (!group && name != "tensorboard") refuse_integration(name);
    tensorboard = tensorboard || name != "none";
  }
  training.report_to.clear();
  if (tensorboard) training.report_to.emplace_back("tensorboard");
}

// Fills in the values that transformers sets when it reads the arguments.
void finish_output(TrainingArguments& training) {
  using trainer::LogLevel;
  if (training.output_dir.empty()) {
    raise<ConfigError>(
        "--output_dir: found an empty value, expected a directory; pass the "
        "directory that gets models, checkpoints and results");
  }
  if (!training.disable_tqdm) {
    training.disable_tqdm =
        training.log_level == LogLevel::kError || training.log_level == LogLevel::kCritical;
  }
  if (training.save_total_limit.value_or(0) <= 0) training.save_total_limit.reset();
}

void finish_precision(TrainingArguments& training, std::vector<std::string>& notes) {
  if (!training.bf16_full_eval || training.bf16) return;
  if (training.do_train) {
    notes.emplace_back(
        "--bf16_full_eval has no effect: evaluation computes as training does, in f32; --bf16 is "
        "for both");
  } else {
    training.bf16 = true;
  }
}

}  // namespace

void complete_arguments(job::Arguments& arguments, tasks::TaskArguments& task,
                        std::vector<std::string>& notes) {
  choose_integrations(arguments.training);
  finish_output(arguments.training);
  finish_precision(arguments.training, notes);
  if (arguments.trains()) trainer::check_max_steps(arguments.training);
  finish_intervals(arguments.training);
  finish_best_model(arguments.training, task, notes);
  finish_quantization(arguments, task, notes);
  finish_lora(arguments, notes);
  check_optimization(arguments.training, notes);
  task.check(arguments.stages(), arguments.training.eval_strategy != IntervalStrategy::kNo
                                     ? "--eval_strategy"
                                     : "--do_eval");
}

}  // namespace tandem::apps
