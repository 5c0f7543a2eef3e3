// Checkpoints as the training loop uses them: resuming from one, writing them, returning to the
// best.
#include <algorithm>
#include <numeric>
#include <utility>

#include "tandem/comm/texts.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/dist/checksum.h"
#include "tandem/models/pretrained/adapter_files.h"
#include "tandem/trainer/checkpoint_damage.h"
#include "tandem/trainer/python_checkpoint.h"
#include "tandem/trainer/resume_differences.h"
#include "tandem/trainer/trainer.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

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
  check("--per_device_train_batch_size", saved.per_device_train_batch_size,
        plan.per_device_batch_size, "pass the old value");
  check("--gradient_accumulation_steps", saved.gradient_accumulation_steps, plan.accumulation_steps,
        "pass the old value");
  if (saved.optimizer != optimizer) {
    raise<ConfigError>("'{}' was written with --optim {}, this run has {}: pass the old value",
                       checkpoint.native(), saved.optimizer, optimizer);
  }
  // Another number of features is another training set, and not a hidden mistake: as with Hugging
  // Face's Trainer the run continues, with a warning.
  if (saved.num_features == plan.num_features && saved.data_fingerprint != fingerprint) {
    raise<ConfigError>(
        "'{}' was trained on other features (fingerprint {}, now {}): pass the same data, "
        "tokenizer and feature flags",
        checkpoint.native(), saved.data_fingerprint, fingerprint);
  }
}

// The losses since the last log for another number of shards: their mean, which is what the log
// shows, stays.
std::vector<double> losses_per_shard(std::vector<double> saved, int logical_shards) {
  const auto shards = static_cast<std::size_t>(logical_shards);
  if (saved.size() == shards || saved.empty()) return saved;
  const double sum = std::accumulate(saved.begin(), saved.end(), 0.0);
  return std::vector<double>(shards, sum / static_cast<double>(saved.size()));
}

// The parts of a loaded checkpoint that enter the computation, as lines on which the ranks agree:
// each host may have read files of its own, under the same name.
std::string describe_checkpoint(const LoadedCheckpoint& loaded, const dist::ModelState& model,
                                ThreadPool& threads) {
  std::string text = fmt::format("trainer_state.json global_step={}\n", loaded.state.global_step);
  const auto resume = parse_python_json(loaded.resume.to_json());
  for (const auto& [key, value] : resume.items())
    if (key != "history") text += fmt::format("tandem_state.json {}={}\n", key, value.dump());
  text += dist::checksum_line("weights", threads, model.trained_weights());
  text += dist::checksum_line("optimizer's state", threads, model.optimizer_state());
  return text;
}

// Logs how a run that resumes from `checkpoint` differs from the run that wrote it.
void log_resuming(const fs::path& checkpoint, const LoadedCheckpoint& loaded,
                  const TrainingPlan& plan, const TrainingArguments& arguments,
                  Observer& observer) {
  if (loaded.resume.from_python) {
    observer.note(
        fmt::format("'{}' was written by Hugging Face's Trainer: weights, optimizer and steps "
                    "continue; the state of PyTorch's random numbers is not used",
                    checkpoint.native()));
  }
  if (!loaded.resume.from_python && loaded.resume.num_features != plan.num_features) {
    observer.warning(fmt::format(
        "'{}' was written with a training set of {} features, this run has {}: the run "
        "continues at step {} of {}; epochs, order of the data and bits are others from here on",
        checkpoint.native(), loaded.resume.num_features, plan.num_features,
        loaded.state.global_step, plan.total_steps));
  }
  if (loaded.resume.logical_shards != plan.logical_shards) {
    observer.warning(fmt::format(
        "this run has {} logical shards, '{}' was written with {}: the run continues at step {} of "
        "{} with {} features a step instead of {}; the order of the data and the bits are others "
        "from here on",
        plan.logical_shards, checkpoint.native(), loaded.resume.logical_shards,
        loaded.state.global_step, plan.total_steps, plan.total_train_batch_size(),
        plan.total_train_batch_size() / plan.logical_shards * loaded.resume.logical_shards));
  }
  if (const std::string text = resume_differences(checkpoint, loaded.state, plan, arguments);
      !text.empty()) {
    observer.warning(text);
  }
  if (loaded.state.max_steps != plan.total_steps) {
    observer.warning(fmt::format(
        "'{}' was on its way to {} steps, this run goes to {}: the learning-rate schedule changes",
        checkpoint.native(), loaded.state.max_steps, plan.total_steps));
  }
  if (loaded.state.global_step >= plan.total_steps) {
    observer.warning(fmt::format("'{}' is at step {}, this run has {}: nothing is left to train",
                                 checkpoint.native(), loaded.state.global_step, plan.total_steps));
  }
}

void read_weights(const fs::path& checkpoint, const nn::ParameterLayout& layout,
                  dist::ModelState& model) {
  require_undamaged(checkpoint);
  const models::TrainedWeights file(checkpoint, layout);
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (!file.holds(parameter)) continue;
    const formats::TensorView* tensor = file.find(parameter);
    if (tensor == nullptr)
      raise<DataError>("'{}' has no tensor '{}'", file.path().native(), parameter.name);
    formats::copy_to_float(*tensor, parameter.values_in(model.weights()));
  }
}

// The result of load(). A checkpoint that the user did not name was found in the output directory.
// A run of another model, or of other data, may have left it there: errors name the flags that
// help.
template <class Load>
LoadedCheckpoint with_advice(const TrainingArguments& arguments, Load load) {
  constexpr std::string_view kAdvice =
      "; or change --output_dir, or pass --overwrite_output_dir to train from scratch";
  if (arguments.resume_from_checkpoint) return load();
  try {
    return load();
  } catch (const ConfigError& error) {
    raise<ConfigError>("{}{}", error.what(), kAdvice);
  } catch (const DataError& error) {
    raise<DataError>("{}{}", error.what(), kAdvice);
  }
}

}  // namespace

ResumeState Trainer::resume_state(const fs::path& checkpoint) {
  return load_checkpoint_state(checkpoint).resume;
}

TrainedArenas Trainer::trained_arenas() const {
  return {.weights = parts_.model.weights(),
          .optimizer_state = parts_.model.optimizer_state(),
          .state_tensors = parts_.optimizer.state_tensors()};
}

LoadedCheckpoint Trainer::load_checkpoint(const fs::path& checkpoint) {
  LoadedCheckpoint loaded = load_checkpoint_state(checkpoint);
  check_resumable(loaded.resume, plan_, parts_.data_fingerprint, resume_.optimizer, checkpoint);
  log_resuming(checkpoint, loaded, plan_, parts_.arguments, parts_.observer);
  if (parts_.gradients.node_leader()) {
    if (!is_main()) require_undamaged(checkpoint);  // rank 0 looked through its own before
    load_checkpoint_arenas(checkpoint, parts_.task.layout(), trained_arenas());
    parts_.model.set_step(static_cast<std::uint64_t>(loaded.state.global_step));
  }
  return loaded;
}

void Trainer::resume_from(const fs::path& checkpoint) {
  LoadedCheckpoint loaded =
      with_advice(parts_.arguments, [&] { return load_checkpoint(checkpoint); });
  parts_.communicator.barrier();
  if (parts_.communicator.size() > 1) {
    agree(parts_.communicator, fmt::format("checkpoint to resume from, '{}'", checkpoint.native()),
          describe_checkpoint(loaded, parts_.model, parts_.kernels.threads));
  }
  // The new plan describes this run (steps, intervals); the checkpoint describes the past.
  state_.epoch = loaded.state.epoch;
  state_.global_step = loaded.state.global_step;
  session_.first_step = state_.global_step;
  state_.total_flos = loaded.state.total_flos;
  state_.num_input_tokens_seen = loaded.state.num_input_tokens_seen;
  state_.best_metric = loaded.state.best_metric;
  state_.best_model_checkpoint = loaded.state.best_model_checkpoint;
  state_.best_global_step = loaded.state.best_global_step;
  state_.should_save = loaded.state.should_save;
  state_.should_training_stop = loaded.state.should_training_stop;
  state_.log_history = std::move(loaded.state.log_history);
  resume_.last_log_step = loaded.resume.last_log_step;
  resume_.total_loss = loaded.resume.total_loss;
  resume_.repeated_updates = loaded.resume.repeated_updates;
  resume_.evaluation_due = loaded.resume.evaluation_due;
  resume_.history = std::move(loaded.resume.history);
  if (parts_.arguments.ignore_data_skip)
    resume_.repeated_updates += updates_into_data() % plan_.updates_per_epoch;
  learning_rate_->restore(loaded.resume.metric_schedule);
  counts_.losses =
      losses_per_shard(std::move(loaded.resume.shard_loss_since_log), plan_.logical_shards);
  counts_.losses.resize(static_cast<std::size_t>(plan_.logical_shards));
}

void Trainer::tidy_output_dir(const std::optional<fs::path>& resume) {
  const fs::path output_dir = parts_.arguments.output_dir;
  remove_unfinished_checkpoints(output_dir);
  const SetAside stale = set_stale_checkpoints_aside(output_dir, resume);
  if (!stale.kept) return;
  std::string removed;
  for (const fs::path& path : stale.removed)
    removed += fmt::format("{}{}", removed.empty() ? "" : ", ", path.filename().native());
  parts_.observer.warning(fmt::format(
      "the newest checkpoint of another run is now called '{}'; delete it when it is no longer "
      "needed{}{}",
      stale.kept->native(), removed.empty() ? "" : "; removed: ", removed));
}

void Trainer::save() {
  const TrainingArguments& arguments = parts_.arguments;
  session_.saved_step = state_.global_step;
  state_.should_save = true;
  state_.should_training_stop = state_.global_step >= plan_.total_steps;
  resume_.metric_schedule = learning_rate_->state();
  settle_token_count();
  resume_.shard_loss_since_log = counts_.losses;
  const fs::path directory =
      fs::path(arguments.output_dir) / fmt::format("checkpoint-{}", state_.global_step);
  if (state_.best_metric && state_.best_global_step == state_.global_step)
    state_.best_model_checkpoint = directory.native();
  if (!writes_checkpoints()) return;

  parts_.observer.saving(directory);
  if (!parts_.volume) return write_checkpoint();
  parts_.volume->during([this] { write_checkpoint(); });
}

void Trainer::write_checkpoint() {
  const TrainingArguments& arguments = parts_.arguments;
  std::optional<OptimizationState> optimization;
  if (!arguments.save_only_model) {
    optimization = OptimizationState{.optimizer = optimizer_options(arguments),
                                     .step = state_.global_step,
                                     .peak_learning_rate = arguments.learning_rate,
                                     .next_learning_rate = learning_rate_->at(state_.global_step),
                                     .metric_schedule = resume_.metric_schedule};
  }
  save_checkpoint(arguments.output_dir, {.task = parts_.task,
                                         .arenas = trained_arenas(),
                                         .state = state_,
                                         .resume = resume_,
                                         .training_arguments_json = parts_.arguments_json,
                                         .optimization = std::move(optimization)});
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
  // By rank 0 only: other hosts need not have it, and may have that of another run.
  if (is_main()) read_weights(*state_.best_model_checkpoint, parts_.task.layout(), parts_.model);
  parts_.gradients.broadcast_weights();
  // Training ends only when all nodes have the weights. A view that fails here repeats the
  // broadcast. Without the barrier, a later view could evaluate other weights on one host.
  parts_.communicator.barrier();
  refresh_bf16_weights();
}

}  // namespace tandem::trainer
