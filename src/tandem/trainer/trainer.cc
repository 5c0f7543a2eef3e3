#include "tandem/trainer/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/epoch_order.h"
#include "tandem/kernels/reduce.h"
#include "tandem/models/weight_files.h"
#include "tandem/optim/schedule.h"
#include "tandem/trainer/evaluation.h"
#include "tandem/trainer/resume_differences.h"
#include "tandem/trainer/train_step.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TrainerState initial_state(const TrainingPlan& plan) {
  TrainerState state;
  state.max_steps = plan.total_steps;
  state.num_train_epochs = plan.num_epochs;
  state.train_batch_size = plan.per_device_batch_size;
  state.logging_steps = plan.logging_steps;
  state.eval_steps = plan.eval_steps;
  state.save_steps = plan.save_steps;
  return state;
}

ResumeState initial_resume_state(const TrainingPlan& plan, const TrainingArguments& arguments,
                                 const std::string& data_fingerprint) {
  ResumeState state;
  state.logical_shards = plan.logical_shards;
  state.per_device_train_batch_size = plan.per_device_batch_size;
  state.gradient_accumulation_steps = plan.accumulation_steps;
  state.num_features = plan.num_features;
  state.data_fingerprint = data_fingerprint;
  state.optimizer = optim::to_string(arguments.optim);
  return state;
}

void add_token_rate(ordered_json& entry, double seconds, double tokens) {
  entry["train_runtime"] = round_digits(seconds, 4);
  entry["train_tokens_per_second"] = round_digits(tokens / std::max(seconds, 1e-9), 3);
}

// The exponential moving average that the progress line shows.
void smooth(double& average, double value) {
  average = average == 0 ? value : 0.9 * average + 0.1 * value;
}

// A checkpoint fixes what the order of data and the sums depend on.
void check_resumable(const ResumeState& saved, const TrainingPlan& plan,
                     const std::string& fingerprint, const std::string& optimizer,
                     const fs::path& checkpoint) {
  const auto check = [&](std::string_view what, std::int64_t found, std::int64_t expected,
                         std::string_view advice) {
    if (found != expected) {
      raise<ConfigError>("'{}' was written with {} {}, this run has {}: {}", checkpoint.native(),
                         what, found, expected, advice);
    }
  };
  if (saved.from_python) return;  // what it records was adopted, what it does not is this run's
  check("a training set of", saved.num_features, plan.num_features,
        "pass the same data and feature flags");
  check("logical shards:", saved.logical_shards, plan.logical_shards,
        "pass --logical_shards with the old value");
  check("--per_device_train_batch_size", saved.per_device_train_batch_size,
        plan.per_device_batch_size, "pass the old value");
  check("--gradient_accumulation_steps", saved.gradient_accumulation_steps, plan.accumulation_steps,
        "pass the old value");
  if (saved.optimizer != optimizer) {
    raise<ConfigError>("'{}' was written with --optim {}, this run has {}: pass the old value",
                       checkpoint.native(), saved.optimizer, optimizer);
  }
  if (saved.data_fingerprint != fingerprint) {
    raise<ConfigError>(
        "'{}' was trained on other features (fingerprint {}, now {}): pass the same data, "
        "tokenizer and feature flags",
        checkpoint.native(), saved.data_fingerprint, fingerprint);
  }
}

}  // namespace

ResumeState Trainer::resume_state(const fs::path& checkpoint) {
  return load_checkpoint_state(checkpoint).resume;
}

Trainer::Trainer(const TrainerParts& parts)
    : parts_(parts), memory_(!parts.arguments.skip_memory_metrics) {
  memory_.start(MemoryTracker::Stage::kInit);
  memory_.stop(MemoryTracker::Stage::kInit);  // weights and data were there before
}

TrainResult Trainer::train(const std::optional<fs::path>& resume) {
  const TrainingArguments& arguments = parts_.arguments;
  memory_.start(MemoryTracker::Stage::kTrain);
  plan_ = make_training_plan(arguments, static_cast<std::int64_t>(parts_.task.num_train_features()),
                             parts_.parallel.logical_shards());
  TANDEM_CHECK(parts_.optimizer != nullptr, "a trainer without an optimizer cannot train");
  learning_rate_.emplace(arguments, plan_);
  const StepContext step_context{.kernels = parts_.kernels,
                                 .task = parts_.task,
                                 .parallel = parts_.parallel,
                                 .optimizer = *parts_.optimizer,
                                 .plan = plan_,
                                 .dropout_seed = static_cast<std::uint64_t>(arguments.seed),
                                 .max_grad_norm = arguments.max_grad_norm};
  state_ = initial_state(plan_);
  resume_ = initial_resume_state(plan_, arguments, parts_.data_fingerprint);
  own_losses_.assign(parts_.parallel.shards().size(), 0.0);
  if (resume) resume_from(*resume);
  refresh_bf16_weights();
  if (writes_checkpoints()) remove_unfinished_checkpoints(arguments.output_dir);

  parts_.observer.train_begin({.plan = plan_,
                               .num_parameters = parts_.task.layout().num_trainable_parameters(),
                               .first_step = state_.global_step});
  if (arguments.eval_on_start && !resume) evaluate_and_record();
  train_start_ = Clock::now();
  bool stop = state_.global_step >= plan_.total_steps;
  StepResult step;

  while (!stop) {
    const std::int64_t epoch = updates_into_data() / plan_.updates_per_epoch;
    const std::int64_t epoch_begin = epoch * plan_.updates_per_epoch;
    const data::EpochBatches order = epoch_batches(arguments, plan_, parts_.task, epoch);
    for (std::int64_t update = updates_into_data() - epoch_begin;
         update < plan_.updates_per_epoch && !stop; ++update) {
      const auto step_start = Clock::now();
      const std::int64_t first_batch = update * plan_.accumulation_steps;
      const std::int64_t end_batch =
          std::min<std::int64_t>(first_batch + plan_.accumulation_steps, plan_.batches_per_epoch);
      const double learning_rate = learning_rate_->at(state_.global_step);
      step = train_step(step_context, order, static_cast<std::size_t>(first_batch),
                        static_cast<std::size_t>(end_batch - first_batch), state_.global_step,
                        learning_rate, std::move(step));

      record_losses(step.shard_losses);
      ++state_.global_step;
      warn_if_not_finite(step.grad_norm);
      const double epoch_done =
          static_cast<double>(epoch) +
          static_cast<double>(end_batch) / static_cast<double>(plan_.batches_per_epoch);
      count_tokens(step.batch);
      const double loss = std::accumulate(step.shard_losses.begin(), step.shard_losses.end(), 0.0) /
                          static_cast<double>(std::max<std::size_t>(1, step.shard_losses.size()));
      state_.epoch = epoch_done;
      report_progress(loss, learning_rate, step.batch, seconds_since(step_start));
      after_step(epoch_done, step.grad_norm, learning_rate, update + 1 == plan_.updates_per_epoch);
      stop = state_.global_step >= plan_.total_steps;
      if (agreed_to_stop()) {
        if (saved_step_ != state_.global_step) save();
        parts_.observer.train_end();
        return {.preempted = true, .metrics = {}};
      }
    }
  }

  if (arguments.load_best_model_at_end) load_best_model();
  TrainResult result{.preempted = false, .metrics = final_metrics(seconds_since(train_start_))};
  log(result.metrics);
  parts_.observer.train_end();
  return result;
}

TrainedArenas Trainer::trained_arenas() const {
  return {.weights = parts_.parallel.weights(),
          .optimizer_state = parts_.parallel.optimizer_state(),
          .state_tensors = parts_.optimizer->state_tensors()};
}

void Trainer::resume_from(const fs::path& checkpoint) {
  LoadedCheckpoint loaded = load_checkpoint_state(checkpoint);
  check_resumable(loaded.resume, plan_, parts_.data_fingerprint, resume_.optimizer, checkpoint);
  if (loaded.resume.from_python) {
    parts_.observer.note(fmt::format(
        "'{}' was written by Hugging Face's Trainer: weights, optimizer and steps go on; the state "
        "of PyTorch's random numbers is not used",
        checkpoint.native()));
  }
  if (const std::string text =
          resume_differences(checkpoint, loaded.state, plan_, parts_.arguments);
      !text.empty()) {
    parts_.observer.warning(text);
  }
  if (loaded.state.max_steps != plan_.total_steps) {
    parts_.observer.warning(fmt::format(
        "'{}' was on its way to {} steps, this run goes to {}: the learning-rate schedule changes",
        checkpoint.native(), loaded.state.max_steps, plan_.total_steps));
  }
  if (parts_.parallel.node_leader()) {
    load_checkpoint_arenas(checkpoint, parts_.task.layout(), trained_arenas());
  }
  parts_.communicator.barrier();
  // What is about this run (steps, intervals) is the new plan's; what happened so far is the
  // checkpoint's.
  state_.epoch = loaded.state.epoch;
  state_.global_step = loaded.state.global_step;
  state_.total_flos = loaded.state.total_flos;
  state_.num_input_tokens_seen = loaded.state.num_input_tokens_seen;
  state_.best_metric = loaded.state.best_metric;
  state_.best_model_checkpoint = loaded.state.best_model_checkpoint;
  state_.best_global_step = loaded.state.best_global_step;
  state_.log_history = std::move(loaded.state.log_history);
  resume_.last_log_step = loaded.resume.last_log_step;
  resume_.total_loss = loaded.resume.total_loss;
  resume_.repeated_updates = loaded.resume.repeated_updates;
  if (parts_.arguments.ignore_data_skip)
    resume_.repeated_updates += updates_into_data() % plan_.updates_per_epoch;
  learning_rate_->restore(loaded.resume.plateau);
  const dist::Range shards = parts_.parallel.shards();
  for (std::size_t i = 0; i < own_losses_.size(); ++i) {
    own_losses_[i] = loaded.resume.shard_loss_since_log.at(shards.begin + i);
  }
}

void Trainer::refresh_bf16_weights() {
  const auto bf16 = parts_.parallel.bf16_weights();
  if (bf16.empty()) return;
  for (const dist::Range& range : parts_.parallel.owned_ranges()) {
    kernels::convert(parts_.kernels, range.size(), parts_.parallel.weights().data() + range.begin,
                     bf16.data() + range.begin);
  }
  parts_.parallel.publish();
}

void Trainer::warn_if_not_finite(double grad_norm) {
  if (std::isfinite(grad_norm) || warned_not_finite_) return;
  warned_not_finite_ = true;
  parts_.observer.warning(fmt::format(
      "step {}: the gradient norm is {}: the weights are lost from here on; try a smaller "
      "--learning_rate, warm-up, or f32 instead of --bf16",
      state_.global_step, grad_norm));
}

void Trainer::record_losses(std::span<const double> losses) {
  const auto steps_since_log = static_cast<double>(1 + state_.global_step - resume_.last_log_step);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const bool count_average = parts_.arguments.logging_nan_inf_filter && !std::isfinite(losses[i]);
    own_losses_[i] += count_average ? own_losses_[i] / steps_since_log : losses[i];
  }
}

void Trainer::after_step(double epoch, double grad_norm, double learning_rate, bool last_of_epoch) {
  const TrainingArguments& arguments = parts_.arguments;
  const std::int64_t step = state_.global_step;
  const bool last = step >= plan_.total_steps;
  const auto due = [&](std::int64_t interval) { return interval > 0 && step % interval == 0; };
  const bool epoch_end = last_of_epoch || last;

  const bool log_now = due(plan_.logging_steps) || (step == 1 && arguments.logging_first_step) ||
                       (epoch_end && arguments.logging_strategy == IntervalStrategy::kEpoch);
  const double progress =
      arguments.eval_strategy == IntervalStrategy::kEpoch ? epoch : static_cast<double>(step);
  const bool evaluate_now = (due(plan_.eval_steps) ||
                             (epoch_end && arguments.eval_strategy == IntervalStrategy::kEpoch)) &&
                            progress >= arguments.eval_delay;
  bool save_now = due(plan_.save_steps) ||
                  (last && arguments.save_strategy == SaveStrategy::kSteps) ||
                  (epoch_end && arguments.save_strategy == SaveStrategy::kEpoch);

  if (log_now) log_training(grad_norm, learning_rate);
  if (evaluate_now) {
    const std::int64_t best_before = state_.best_global_step;
    follow_metric(evaluate_and_record());
    save_now = save_now || (arguments.save_strategy == SaveStrategy::kBest &&
                            state_.best_global_step != best_before);
  }
  if (save_now) save();
}

void Trainer::log_training(double grad_norm, double learning_rate) {
  const std::int64_t steps = state_.global_step - resume_.last_log_step;
  if (steps <= 0) return;
  const double loss =
      parts_.parallel.sum_over_shards(own_losses_) / static_cast<double>(plan_.logical_shards);
  std::fill(own_losses_.begin(), own_losses_.end(), 0.0);
  resume_.total_loss += loss;
  resume_.last_log_step = state_.global_step;
  ordered_json entry;
  entry["loss"] = round_digits(loss / static_cast<double>(steps), 4);
  entry["grad_norm"] = grad_norm;
  entry["learning_rate"] = learning_rate;
  if (parts_.arguments.include_num_input_tokens_seen != TokenCount::kNo) {
    gather_token_count();
    entry["num_input_tokens_seen"] = state_.num_input_tokens_seen;
    add_token_rate(entry, seconds_since(train_start_),
                   static_cast<double>(state_.num_input_tokens_seen));
  }
  log(std::move(entry));
}

void Trainer::log(ordered_json entry) {
  if (!entry.contains("epoch")) entry["epoch"] = state_.epoch;
  parts_.observer.log(entry);
  entry["step"] = state_.global_step;
  state_.log_history.push_back(std::move(entry));
}

ordered_json Trainer::evaluate(tasks::Split split) {
  const bool eval = split == tasks::Split::kEval;
  const auto stage = eval ? MemoryTracker::Stage::kEval : MemoryTracker::Stage::kPredict;
  memory_.start(stage);
  ordered_json metrics = trainer::evaluate(
      {.split = split,
       .metric_prefix = eval ? "eval" : "test",
       .file_prefix = eval ? "eval" : "predict",
       .directory = parts_.arguments.output_dir,
       .batch_size = static_cast<std::size_t>(parts_.arguments.per_device_eval_batch_size)},
      parts_.kernels, parts_.communicator, parts_.task, weights(), parts_.observer);
  memory_.stop_and_report(stage, metrics);
  return metrics;
}

// reduce_lr_on_plateau looks at the evaluations of training, not at that of eval_on_start.
void Trainer::follow_metric(const ordered_json& metrics) {
  if (!learning_rate_->follows_metric()) return;
  const std::string key = with_eval_prefix(parts_.arguments.metric_for_best_model.value_or("f1"));
  learning_rate_->measured(metrics.at(key).get<double>());
}

ordered_json Trainer::evaluate_and_record() {
  const TrainingArguments& arguments = parts_.arguments;
  const ordered_json metrics = evaluate(tasks::Split::kEval);
  log(metrics);
  if (!arguments.metric_for_best_model) return metrics;
  const std::string key = with_eval_prefix(*arguments.metric_for_best_model);
  if (!metrics.contains(key)) {
    std::string known;
    for (const auto& [name, value] : metrics.items()) known += (known.empty() ? "" : ", ") + name;
    raise<ConfigError>("--metric_for_best_model {}: the evaluation has no '{}'; it has {}",
                       *arguments.metric_for_best_model, key, known);
  }
  const auto value = metrics.at(key).get<double>();
  const bool greater = arguments.greater_is_better.value_or(!key.ends_with("loss"));
  if (!state_.best_metric ||
      (greater ? value > *state_.best_metric : value < *state_.best_metric)) {
    state_.best_metric = value;
    state_.best_global_step = state_.global_step;
  }
  return metrics;
}

void Trainer::save() {
  const TrainingArguments& arguments = parts_.arguments;
  saved_step_ = state_.global_step;
  resume_.plateau = learning_rate_->state();
  gather_token_count();
  // Every rank contributes the losses of its shards; the others' are zeros, so the sum is exact.
  resume_.shard_loss_since_log.assign(static_cast<std::size_t>(plan_.logical_shards), 0.0);
  std::copy(own_losses_.begin(), own_losses_.end(),
            resume_.shard_loss_since_log.begin() +
                static_cast<std::ptrdiff_t>(parts_.parallel.shards().begin));
  parts_.communicator.all_reduce(std::span<double>(resume_.shard_loss_since_log),
                                 comm::ReduceOp::kSum);
  const fs::path directory =
      fs::path(arguments.output_dir) / fmt::format("checkpoint-{}", state_.global_step);
  if (state_.best_metric && state_.best_global_step == state_.global_step)
    state_.best_model_checkpoint = directory.native();
  if (!writes_checkpoints()) return;

  parts_.observer.saving(directory);
  save_checkpoint(arguments.output_dir, {.task = parts_.task,
                                         .arenas = trained_arenas(),
                                         .state = state_,
                                         .resume = resume_,
                                         .training_arguments_json = parts_.arguments_json,
                                         .with_optimizer = !arguments.save_only_model});
  if (arguments.save_total_limit && *arguments.save_total_limit > 0) {
    for (const fs::path& removed : rotate_checkpoints(
             arguments.output_dir, *arguments.save_total_limit, state_.best_model_checkpoint)) {
      parts_.observer.note(fmt::format(
          "Deleting older checkpoint [{}] due to args.save_total_limit", removed.native()));
    }
  }
}

void Trainer::load_best_model() {
  if (!state_.best_model_checkpoint) {
    parts_.observer.warning(
        "--load_best_model_at_end: no evaluation and checkpoint fell together, the last weights "
        "stay");
    return;
  }
  parts_.observer.note(fmt::format("Loading best model from {} (score: {}).",
                                   *state_.best_model_checkpoint, *state_.best_metric));
  if (parts_.parallel.node_leader()) {
    const models::WeightFiles file(*state_.best_model_checkpoint);
    for (const nn::ParameterSpec& parameter : parts_.task.layout().parameters()) {
      const models::TensorView* tensor = file.find(parameter.name);
      if (tensor == nullptr)
        raise<DataError>("'{}' has no tensor '{}'", file.path().native(), parameter.name);
      models::copy_to_float(*tensor,
                            parts_.parallel.weights().subspan(parameter.offset, parameter.size));
    }
  }
  parts_.communicator.barrier();
  refresh_bf16_weights();
}

void Trainer::count_tokens(const tasks::BatchSize& batch) {
  computed_tokens_ += static_cast<double>(batch.computed_tokens);
  uncounted_computed_tokens_ += static_cast<std::int64_t>(batch.computed_tokens);
  const TokenCount count = parts_.arguments.include_num_input_tokens_seen;
  if (count == TokenCount::kNo) return;
  uncounted_tokens_ += static_cast<std::int64_t>(count == TokenCount::kAll ? batch.computed_tokens
                                                                           : batch.real_tokens);
}

// Brings state_.num_input_tokens_seen and state_.total_flos up to date. Collective. Ranks compute different numbers of tokens, so
// each counts its own: the sums do not depend on the number of ranks.
void Trainer::gather_token_count() {
  std::array<std::int64_t, 2> tokens = {std::exchange(uncounted_tokens_, 0),
                                        std::exchange(uncounted_computed_tokens_, 0)};
  if (parts_.communicator.size() > 1)
    parts_.communicator.all_reduce(std::span<std::int64_t>(tokens), comm::ReduceOp::kSum);
  state_.num_input_tokens_seen += tokens[0];
  state_.total_flos += 6.0 * static_cast<double>(tokens[1]) *
                       static_cast<double>(parts_.task.num_parameters_without_embeddings());
}

bool Trainer::agreed_to_stop() {
  std::int64_t stop = parts_.stop_requested.load(std::memory_order_relaxed) ? 1 : 0;
  if (parts_.communicator.size() == 1) return stop != 0;
  parts_.communicator.all_reduce(std::span(&stop, 1), comm::ReduceOp::kMax);
  return stop != 0;
}

void Trainer::report_progress(double loss, double learning_rate, const tasks::BatchSize& batch,
                              double step_seconds) {
  smooth(smoothed_step_seconds_, step_seconds);
  smooth(smoothed_tokens_per_second_, static_cast<double>(batch.real_tokens) / step_seconds);
  smooth(smoothed_flops_per_second_, batch.flops / step_seconds);
  parts_.observer.step_end(
      {.step = state_.global_step,
       .max_steps = plan_.total_steps,
       .epoch = state_.epoch,
       .loss = loss,
       .learning_rate = learning_rate,
       .real_tokens_per_second = smoothed_tokens_per_second_ * parts_.communicator.size(),
       .flops_per_second = smoothed_flops_per_second_,
       .seconds_left =
           smoothed_step_seconds_ * static_cast<double>(plan_.total_steps - state_.global_step)});
}

ordered_json Trainer::final_metrics(double seconds) {
  const double pending =
      parts_.parallel.sum_over_shards(own_losses_) / static_cast<double>(plan_.logical_shards);
  ordered_json metrics;
  add_speed_metrics(metrics, "train", seconds, plan_.num_train_samples,
                    static_cast<double>(plan_.total_steps));
  if (parts_.arguments.include_tokens_per_second) {
    double tokens = computed_tokens_;
    if (parts_.communicator.size() > 1)
      parts_.communicator.all_reduce(std::span(&tokens, 1), comm::ReduceOp::kSum);
    metrics["train_tokens_per_second"] = round_digits(tokens / std::max(seconds, 1e-9), 3);
  }
  gather_token_count();
  metrics["total_flos"] = state_.total_flos;
  metrics["train_loss"] = (resume_.total_loss + pending) /
                          static_cast<double>(std::max<std::int64_t>(1, state_.global_step));
  memory_.stop_and_report(MemoryTracker::Stage::kTrain, metrics);
  metrics["epoch"] = state_.epoch;
  return metrics;
}

}  // namespace tandem::trainer
