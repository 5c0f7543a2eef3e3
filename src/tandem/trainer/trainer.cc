#include "tandem/trainer/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/interruption.h"
#include "tandem/core/json.h"
#include "tandem/data/epoch_order.h"
#include "tandem/kernels/reduce.h"
#include "tandem/optim/schedule.h"
#include "tandem/trainer/evaluation.h"
#include "tandem/trainer/train_step.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The intervals are the arguments, as in the Trainer: also where a strategy does not count steps.
TrainerState initial_state(const TrainingPlan& plan, const TrainingArguments& arguments) {
  TrainerState state;
  state.max_steps = plan.total_steps;
  state.num_train_epochs = plan.num_epochs;
  state.train_batch_size = plan.per_device_batch_size;
  state.logging_steps = resolve_steps(arguments.logging_steps, plan.total_steps);
  if (arguments.eval_steps)
    state.eval_steps = resolve_steps(*arguments.eval_steps, plan.total_steps);
  state.save_steps = resolve_steps(arguments.save_steps, plan.total_steps);
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

// Over the shards of the record.
double mean_loss(const StepRecord& record) {
  double sum = 0;
  for (std::size_t i = 0; i < record.num_shards(); ++i) sum += record.loss(i);
  return sum / static_cast<double>(record.num_shards());
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts)
    : parts_(parts), memory_(!parts.arguments.skip_memory_metrics) {
  memory_.start(MemoryTracker::Stage::kInit);
  memory_.stop(MemoryTracker::Stage::kInit);  // weights and data were there before
  const auto start = Clock::now();
  refresh_bf16_weights();  // an evaluation without training reads them too
  session_.preparation_seconds = seconds_since(start);
}

TrainResult Trainer::train(const std::optional<fs::path>& resume) {
  memory_.start(MemoryTracker::Stage::kTrain);
  if (!session_.continued) begin_training(resume);
  if (!session_.begin_reported) log_start();
  if (parts_.callbacks.paused()) save_and_wait();
  bool stopped = false;
  try {
    evaluate_before_steps(!resume && !session_.continued);
    session_.start = Clock::now();
    stopped = !train_steps();
  } catch (const Interrupted&) {
    if (parts_.callbacks.leave_ordered()) throw;
    stopped = true;  // by an evaluation, on all ranks
  }
  if (stopped) {
    if (state_.global_step > 0 && session_.saved_step != state_.global_step) save();
    parts_.observer.train_end();
    return {.preempted = true, .metrics = {}, .step_times = step_times()};
  }
  if (parts_.arguments.load_best_model_at_end) load_best_model();
  if (session_.final_metrics.is_null()) {
    session_.final_metrics = final_metrics();
    log(session_.final_metrics);
    keep_progress();
  }
  parts_.observer.train_end();
  return {.preempted = false, .metrics = session_.final_metrics, .step_times = step_times()};
}

void Trainer::log_start() {
  session_.begin_reported = true;
  parts_.observer.train_begin({.plan = plan_,
                               .num_parameters = parts_.task.layout().num_trainable_parameters(),
                               .first_step = state_.global_step,
                               .continued = session_.continued});
}

void Trainer::make_plan() {
  session_.start = Clock::now();
  const TrainingArguments& arguments = parts_.arguments;
  plan_ = make_training_plan(arguments, parts_.task, parts_.gradients.logical_shards());
  learning_rate_.emplace(arguments, plan_);
  state_ = initial_state(plan_, arguments);
  resume_ = initial_resume_state(plan_, arguments, parts_.data_fingerprint);
  counts_.losses.assign(static_cast<std::size_t>(plan_.logical_shards), 0.0);
}

void Trainer::begin_training(const std::optional<fs::path>& resume) {
  make_plan();
  if (resume) resume_from(*resume);
  refresh_bf16_weights();
  if (writes_checkpoints()) tidy_output_dir(resume);
  keep_progress();
}

void Trainer::evaluate_before_steps(bool from_the_start) {
  if (parts_.arguments.eval_on_start && from_the_start) {
    evaluate_and_record();
    keep_progress();
  }
  if (resume_.evaluation_due) evaluate_and_save(due());
}

bool Trainer::train_steps() {
  const TrainingArguments& arguments = parts_.arguments;
  const kernels::Context profiled{parts_.kernels.threads, parts_.kernels.kernels,
                                  parts_.kernels.scratch, &speed_.profile};
  const StepContext context{.kernels = profiled,
                            .task = parts_.task,
                            .model = parts_.model,
                            .gradients = parts_.gradients,
                            .optimizer = parts_.optimizer,
                            .plan = plan_,
                            .dropout_seed = static_cast<std::uint64_t>(arguments.seed),
                            .max_grad_norm = arguments.max_grad_norm,
                            .embedding_noise = arguments.neftune_noise_alpha.value_or(0)};
  StepResult step;
  while (state_.global_step < plan_.total_steps) {
    const std::int64_t epoch = updates_into_data() / plan_.updates_per_epoch;
    const data::EpochBatches order = epoch_batches(arguments, plan_, parts_.task, epoch);
    const std::int64_t first_update = updates_into_data() - epoch * plan_.updates_per_epoch;
    parts_.task.begin_epoch(
        {.epoch = static_cast<std::uint64_t>(epoch),
         .batches = order,
         .first_batch = static_cast<std::size_t>(first_update * plan_.accumulation_steps)});
    for (std::int64_t update = first_update;
         update < plan_.updates_per_epoch && state_.global_step < plan_.total_steps; ++update) {
      const auto start = Clock::now();
      const std::int64_t first_batch = update * plan_.accumulation_steps;
      const double learning_rate = learning_rate_->at(state_.global_step);
      step = train_step(context, order, static_cast<std::size_t>(first_batch),
                        static_cast<std::size_t>(end_batch(update) - first_batch),
                        state_.global_step, learning_rate, std::move(step));
      step_done(step, learning_rate, start);
      if (agreed_to_stop()) return false;
    }
  }
  return true;
}

// Work after a step that began at `start`.
void Trainer::step_done(const StepResult& step, double learning_rate, Clock::time_point start) {
  speed_.step_seconds += seconds_since(start);
  count_step(step.record, learning_rate);
  warn_if_not_finite(step.grad_norm);
  parts_.callbacks.step_applied(static_cast<std::uint64_t>(state_.global_step),
                                step.record.values());
  report_progress({mean_loss(step.own), mean_loss(step.record)}, learning_rate, step.batch,
                  seconds_since(start));
  after_step(step.grad_norm, learning_rate);
}

// Counts the step after state_.global_step.
void Trainer::count_step(const StepRecord& record, double learning_rate) {
  const std::int64_t epoch = updates_into_data() / plan_.updates_per_epoch;
  const std::int64_t update = updates_into_data() - epoch * plan_.updates_per_epoch;
  record_losses(record);
  ++state_.global_step;
  state_.epoch = static_cast<double>(epoch) + static_cast<double>(end_batch(update)) /
                                                  static_cast<double>(plan_.batches_per_epoch);
  count_tokens(record);
  resume_.history.add({.step = state_.global_step,
                       .loss = mean_loss(record),
                       .learning_rate = learning_rate,
                       .grad_norm = record.grad_norm()});
}

void Trainer::refresh_bf16_weights() {
  const auto bf16 = parts_.model.bf16_weights();
  if (bf16.empty()) return;
  for (const dist::Range& range : parts_.gradients.owned_ranges()) {
    const std::size_t end = std::min(range.end, bf16.size());
    if (range.begin >= end) continue;
    kernels::convert(parts_.kernels, end - range.begin, parts_.model.weights().data() + range.begin,
                     bf16.data() + range.begin);
  }
  parts_.gradients.publish();
}

Trainer::Due Trainer::due() const {
  const TrainingArguments& arguments = parts_.arguments;
  const std::int64_t step = state_.global_step;
  const bool last = step >= plan_.total_steps;
  const bool epoch_end = last || state_.epoch == std::floor(state_.epoch);
  const auto reached = [&](std::int64_t interval) { return interval > 0 && step % interval == 0; };
  const bool by_epoch = arguments.eval_strategy == IntervalStrategy::kEpoch;
  const double progress = by_epoch ? state_.epoch : static_cast<double>(step);
  return {.log = reached(plan_.logging_steps) || (step == 1 && arguments.logging_first_step) ||
                 (epoch_end && arguments.logging_strategy == IntervalStrategy::kEpoch),
          .evaluation = (reached(plan_.eval_steps) || (epoch_end && by_epoch)) &&
                        progress >= arguments.eval_delay,
          .checkpoint = reached(plan_.save_steps) ||
                        (last && arguments.save_strategy == SaveStrategy::kSteps) ||
                        (epoch_end && arguments.save_strategy == SaveStrategy::kEpoch)};
}

void Trainer::after_step(double grad_norm, double learning_rate) {
  const Due due = this->due();
  if (due.log) log_training(grad_norm, learning_rate);
  if (due.evaluation) resume_.evaluation_due = true;
  if (due.log || due.evaluation) keep_progress();
  evaluate_and_save(due);
}

// A checkpoint that is written when the evaluation was stopped knows that it is due.
void Trainer::evaluate_and_save(const Due& due) {
  bool save_now = due.checkpoint;
  if (due.evaluation) {
    const std::int64_t best_before = state_.best_global_step;
    resume_.evaluation_due = true;
    const ordered_json metrics = evaluate_and_record();
    remember_best(metrics);
    follow_metric(metrics);
    save_now = save_now || (parts_.arguments.save_strategy == SaveStrategy::kBest &&
                            state_.best_global_step != best_before);
  }
  resume_.evaluation_due = false;  // also where this run has no evaluations
  if (save_now) save();
  if (due.evaluation || save_now) keep_progress();
}

ordered_json Trainer::evaluate(tasks::Split split) {
  const auto stage =
      split == tasks::Split::kEval ? MemoryTracker::Stage::kEval : MemoryTracker::Stage::kPredict;
  memory_.start(stage);
  ordered_json metrics =
      trainer::evaluate(evaluation_request(split, Moment::kAfterTraining), parts_.kernels,
                        parts_.communicator, parts_.task, weights(), parts_.observer);
  memory_.stop_and_report(stage, metrics);
  return metrics;
}

ordered_json Trainer::evaluate_and_record() {
  memory_.start(MemoryTracker::Stage::kEval);
  ordered_json metrics = evaluate_until_stopped(
      evaluation_request(tasks::Split::kEval, Moment::kInTraining), parts_.kernels,
      parts_.communicator, parts_.task, weights(), parts_.observer, parts_.stop_requested);
  memory_.stop_and_report(MemoryTracker::Stage::kEval, metrics);
  add_token_count(metrics);
  log(metrics);
  return metrics;
}

EvaluationRequest Trainer::evaluation_request(tasks::Split split, Moment moment) const {
  const bool eval = split == tasks::Split::kEval;
  const bool trained = learning_rate_.has_value();  // even for no step
  const tasks::ranking::EvaluatedAt at{
      .epoch = trained ? std::optional(state_.epoch) : std::nullopt,
      .steps = static_cast<std::size_t>(state_.global_step)};
  return {
      .split = split,
      .metric_prefix = eval ? "eval" : std::string(parts_.task.prediction_prefix()),
      .file_prefix = eval ? "eval" : "predict",
      .directory = parts_.arguments.output_dir,
      .batch_size = static_cast<std::size_t>(parts_.arguments.per_device_eval_batch_size),
      .preparation_seconds = trained ? std::nullopt : std::optional(session_.preparation_seconds),
      .at = eval ? std::optional(at) : std::nullopt,
      .most_rows = most_table_rows(moment)};
}

// A view of an elastic job repeats an evaluation that a lost rank interrupted: its row is written
// once. The evaluation behind training follows that of the last step.
std::optional<std::size_t> Trainer::most_table_rows(Moment moment) const {
  if (!parts_.callbacks.is_elastic()) return std::nullopt;
  return moment == Moment::kAfterTraining && learning_rate_ && due().evaluation ? 2 : 1;
}

// The best model and reduce_lr_on_plateau look at the evaluations of training, not at that of
// eval_on_start.
void Trainer::follow_metric(const ordered_json& metrics) {
  if (!learning_rate_->follows_metric()) return;
  const std::string key = with_eval_prefix(parts_.arguments.metric_for_best_model.value_or("f1"));
  learning_rate_->measured(metrics.at(key).get<double>());
}

void Trainer::remember_best(const ordered_json& metrics) {
  const TrainingArguments& arguments = parts_.arguments;
  if (!arguments.metric_for_best_model) return;
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
}

bool Trainer::agreed_to_stop() {
  constexpr std::int64_t kStop = 2;
  constexpr std::int64_t kMeetAgain = 1;
  std::int64_t asked = parts_.stop_requested.load(std::memory_order_relaxed) ? kStop : 0;
  if (asked == 0 && parts_.callbacks.change_asked()) asked = kMeetAgain;
  if (parts_.communicator.size() > 1)
    parts_.communicator.all_reduce(std::span(&asked, 1), comm::ReduceOp::kMax);
  if (asked == kMeetAgain) raise<ViewChanges>("the ranks meet again after this step");
  return asked != 0;
}

}  // namespace tandem::trainer
