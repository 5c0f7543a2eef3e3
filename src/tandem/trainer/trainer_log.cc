// Counters, logs and reports of the training loop.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/trainer/evaluation.h"
#include "tandem/trainer/trainer.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

void add_token_rate(ordered_json& entry, double seconds, double tokens) {
  entry["train_runtime"] = round_digits(seconds, 4);
  entry["train_tokens_per_second"] = round_digits(tokens / std::max(seconds, 1e-9), 3);
}

// The exponential moving average that the progress line shows.
void smooth(double& average, double value) {
  average = average == 0 ? value : 0.9 * average + 0.1 * value;
}

}  // namespace

double Trainer::seconds_of_training() const {
  const std::chrono::duration<double> here = std::chrono::steady_clock::now() - session_.start;
  return session_.seconds_before + here.count();
}

void Trainer::warn_if_not_finite(double grad_norm) {
  if (std::isfinite(grad_norm) || session_.warned_not_finite) return;
  session_.warned_not_finite = true;
  parts_.observer.warning(fmt::format(
      "step {}: the gradient norm is {}: the weights are lost from here on; try a smaller "
      "--learning_rate, warm-up, or f32 instead of --bf16",
      state_.global_step, grad_norm));
}

void Trainer::record_losses(const StepRecord& record) {
  const auto steps_since_log = static_cast<double>(1 + state_.global_step - resume_.last_log_step);
  for (std::size_t i = 0; i < counts_.losses.size(); ++i) {
    const double loss = record.loss(i);
    const bool count_average = parts_.arguments.logging_nan_inf_filter && !std::isfinite(loss);
    counts_.losses[i] += count_average ? counts_.losses[i] / steps_since_log : loss;
  }
}

void Trainer::log_training(double grad_norm, double learning_rate) {
  const std::int64_t steps = state_.global_step - resume_.last_log_step;
  if (steps <= 0) return;
  const double loss =
      dist::sum_along_tree(counts_.losses) / static_cast<double>(plan_.logical_shards);
  std::fill(counts_.losses.begin(), counts_.losses.end(), 0.0);
  resume_.total_loss += loss;
  resume_.last_log_step = state_.global_step;
  ordered_json entry;
  entry["loss"] = round_digits(loss / static_cast<double>(steps), 4);
  entry["grad_norm"] = grad_norm;
  entry["learning_rate"] = learning_rate;
  if (parts_.arguments.include_num_input_tokens_seen != TokenCount::kNo) {
    add_token_count(entry);
    add_token_rate(entry, seconds_of_training(), static_cast<double>(state_.num_input_tokens_seen));
  }
  log(std::move(entry));
}

void Trainer::log(ordered_json entry) {
  // Before the first step the Trainer has the whole number.
  if (!entry.contains("epoch")) entry["epoch"] = whole_zero(state_.epoch);
  parts_.observer.log(entry);
  entry["step"] = state_.global_step;
  state_.log_history.push_back(std::move(entry));
}

// Counted per shard, so the sums depend neither on the ranks that compute them nor on the number of
// ranks.
void Trainer::count_tokens(const StepRecord& record) {
  double real = 0;
  double computed = 0;
  for (std::size_t i = 0; i < record.num_shards(); ++i) {
    real += record.real_tokens(i);
    computed += record.computed_tokens(i);
  }
  counts_.computed_tokens += computed;
  counts_.uncounted_computed_tokens += static_cast<std::int64_t>(computed);
  const TokenCount count = parts_.arguments.include_num_input_tokens_seen;
  if (count == TokenCount::kNo) return;
  counts_.uncounted_tokens +=
      static_cast<std::int64_t>(count == TokenCount::kAll ? computed : real);
}

// Brings state_.num_input_tokens_seen and state_.total_flos up to date.
void Trainer::settle_token_count() {
  state_.num_input_tokens_seen += std::exchange(counts_.uncounted_tokens, 0);
  state_.total_flos += 6.0 *
                       static_cast<double>(std::exchange(counts_.uncounted_computed_tokens, 0)) *
                       static_cast<double>(parts_.task.num_parameters_without_embeddings());
}

void Trainer::add_token_count(ordered_json& metrics) {
  if (parts_.arguments.include_num_input_tokens_seen == TokenCount::kNo) return;
  settle_token_count();
  metrics["num_input_tokens_seen"] = state_.num_input_tokens_seen;
}

void Trainer::report_progress(const StepLoss& loss, double learning_rate,
                              const tasks::BatchSize& batch, double step_seconds) {
  smooth(speed_.smoothed_step_seconds, step_seconds);
  smooth(speed_.smoothed_tokens_per_second, static_cast<double>(batch.real_tokens) / step_seconds);
  smooth(speed_.smoothed_flops_per_second, batch.flops / step_seconds);
  parts_.observer.step_end(
      {.step = state_.global_step,
       .max_steps = plan_.total_steps,
       .epoch = state_.epoch,
       .loss = loss.own,
       .mean_loss = loss.mean,
       .learning_rate = learning_rate,
       .real_tokens_per_second = speed_.smoothed_tokens_per_second * parts_.communicator.size(),
       .flops_per_second = speed_.smoothed_flops_per_second,
       .seconds_left = speed_.smoothed_step_seconds *
                       static_cast<double>(plan_.total_steps - state_.global_step)});
}

ordered_json Trainer::final_metrics() {
  const double seconds = seconds_of_training();
  const double pending =
      dist::sum_along_tree(counts_.losses) / static_cast<double>(plan_.logical_shards);
  ordered_json metrics;
  // As in the Trainer: the share of the plan that was trained in the measured time.
  const auto trained = static_cast<double>(state_.global_step - session_.first_step);
  const auto planned = static_cast<double>(std::max<std::int64_t>(1, plan_.total_steps));
  add_speed_metrics(metrics, "train", seconds, plan_.num_train_samples * trained / planned,
                    trained);
  if (parts_.arguments.include_tokens_per_second) {
    metrics["train_tokens_per_second"] =
        round_digits(counts_.computed_tokens / std::max(seconds, 1e-9), 3);
  }
  settle_token_count();
  add_token_count(metrics);
  metrics["total_flos"] = whole_zero(state_.total_flos);
  metrics["train_loss"] = (resume_.total_loss + pending) /
                          static_cast<double>(std::max<std::int64_t>(1, state_.global_step));
  memory_.stop_and_report(MemoryTracker::Stage::kTrain, metrics);
  metrics["epoch"] = whole_zero(state_.epoch);
  return metrics;
}

StepTimes Trainer::step_times() const {
  const auto seconds = [](Profile::Duration time) {
    return std::chrono::duration<double>(time).count();
  };
  return {.total = speed_.step_seconds,
          .gradients = seconds(speed_.profile.time_of("gradient")),
          .optimizer = seconds(speed_.profile.time_of("optimizer"))};
}

}  // namespace tandem::trainer
