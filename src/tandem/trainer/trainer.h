// The training loop: epochs, steps, logs, evaluations, checkpoints, resume, preemption. One step is
// train_step.h; trainer_checkpoints.cc and trainer_log.cc hold what their names state.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/core/json.h"
#include "tandem/core/profile.h"
#include "tandem/core/volume.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/kernels/context.h"
#include "tandem/optim/optimizer.h"
#include "tandem/tasks/task.h"
#include "tandem/trainer/checkpoint.h"
#include "tandem/trainer/elastic_callbacks.h"
#include "tandem/trainer/memory_tracker.h"
#include "tandem/trainer/observer.h"
#include "tandem/trainer/optimization.h"
#include "tandem/trainer/train_step.h"
#include "tandem/trainer/trainer_state.h"
#include "tandem/trainer/training_arguments.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::trainer {

struct EvaluationRequest;  // evaluation.h

// Objects that a trainer works with; all of them outlive the trainer. The node leader has put the
// initial weights into model.weights().
struct TrainerParts {
  const TrainingArguments& arguments;
  tasks::Task& task;
  const kernels::Context& kernels;
  comm::Communicator& communicator;
  dist::ModelState& model;
  dist::GradientEngine& gradients;
  optim::Optimizer& optimizer;  // its state is in the model
  Observer& observer;
  // Set by a signal handler: training ends after the current step, with a checkpoint.
  const std::atomic<bool>& stop_requested;
  std::string arguments_json;    // for training_args.json
  std::string data_fingerprint;  // training features; a resumed run must have the same
  ElasticCallbacks& callbacks;
  std::optional<VolumeMark> volume = {};  // volume of output_dir: no checkpoint goes elsewhere
};

// Where this rank's time in the steps went, in seconds; what is neither part is forward and
// backward.
struct StepTimes {
  double total = 0;
  // Sums over the shards that backward did not hide, waits for other ranks, the norm.
  double gradients = 0;
  double optimizer = 0;
};

struct TrainResult {
  // stop_requested; a checkpoint of the last step was written, unless it was before the first.
  bool preempted = false;
  nlohmann::ordered_json metrics;  // train_runtime, train_samples_per_second,
                                   // train_steps_per_second, total_flos, train_loss, epoch
  StepTimes step_times;
};

class Trainer {
 public:
  // Collective: makes the bf16 copy of the weights, if there is one.
  explicit Trainer(const TrainerParts& parts);

  // Trains to the end of the plan, or until stop_requested, which also ends an evaluation between
  // two steps; continues exactly where `resume` stopped if given. Collective. After it the weights
  // in model.weights() are the final (or, with load_best_model_at_end, the best) ones. Throws
  // IoError (nothing half-written), DataError, ConfigError (a checkpoint of other data or another
  // model), CommError.
  // After continue_from() it continues there instead.
  TrainResult train(const std::optional<std::filesystem::path>& resume);

  // Counters, log and position of an elastic job: the state that others need to continue, in
  // addition to the weights.
  std::string progress() const;
  // Continues at `from`, with the weights that the ranks have; the newest step may be one that is
  // not counted yet. Work after that step (log, evaluation, checkpoint) is done if it was not.
  // Collective; every rank gives the same. Throws DataError for an invalid text.
  void continue_from(const Continuation& from);

  // Evaluations from here on run the linear layers of `int8`, which outlives the trainer, on 8-bit
  // integers, and the rest in `precision`, which the task must expect.
  void evaluate_int8(const nn::Int8Linears& int8, nn::Precision precision) {
    int8_.emplace(Int8Evaluation{int8, precision});
  }

  // Evaluates the current weights; metrics with prefix "eval" or "test". Writes prediction files
  // into output_dir. Collective.
  nlohmann::ordered_json evaluate(tasks::Split split);

  // num_input_tokens_seen, where it was asked for: the Trainer's logs and results have it.
  // Collective.
  void add_token_count(nlohmann::ordered_json& metrics);

  const TrainerState& state() const { return state_; }
  // Every step of the training, thinned where there are many.
  std::vector<StepPoint> step_history() const { return resume_.history.points(); }
  // The shard count, batch and accumulation that a checkpoint fixes; read before the plan is made.
  static ResumeState resume_state(const std::filesystem::path& checkpoint);

 private:
  bool is_main() const { return parts_.communicator.rank() == 0; }
  bool writes_checkpoints() const {
    return is_main() || (parts_.arguments.save_on_each_node && parts_.gradients.node_leader());
  }
  // Where the next update's data lies, counted in updates: behind --ignore_data_skip not the step.
  std::int64_t updates_into_data() const { return state_.global_step - resume_.repeated_updates; }
  nn::Weights weights() const {
    nn::Weights weights{parts_.model.weights(), parts_.model.bf16_weights()};
    if (!int8_) return weights;
    weights.int8 = &int8_->linears;
    if (int8_->precision == nn::Precision::kFloat32) weights.bf16 = {};
    return weights;
  }
  TrainedArenas trained_arenas() const;
  // Plan, state and weights as before the first step of this run.
  void begin_training(const std::optional<std::filesystem::path>& resume);
  void evaluate_before_steps(bool from_the_start);
  // Returns false if the ranks have agreed to stop before the end of the plan.
  bool train_steps();
  // Number of batches of an epoch in its updates up to this one.
  std::int64_t end_batch(std::int64_t update) const {
    return std::min<std::int64_t>((update + 1) * plan_.accumulation_steps, plan_.batches_per_epoch);
  }
  void step_done(const StepResult& step, double learning_rate,
                 std::chrono::steady_clock::time_point start);
  void resume_from(const std::filesystem::path& checkpoint);
  // The state of a checkpoint that this run can continue; weights and optimizer go into the model.
  LoadedCheckpoint load_checkpoint(const std::filesystem::path& checkpoint);
  void refresh_bf16_weights();
  void after_step(double grad_norm, double learning_rate);
  // Work that is due after the current step.
  struct Due {
    bool log = false, evaluation = false, checkpoint = false;
  };
  Due due() const;
  void evaluate_and_save(const Due& due);
  void make_plan();
  void log_start();
  void adopt(const std::string& progress);
  void count_step(const StepRecord& record, double learning_rate);
  void keep_progress();
  bool has_checkpoint() const;
  [[noreturn]] void save_and_wait();
  void warn_if_not_finite(double grad_norm);
  void record_losses(const StepRecord& record);
  void log_training(double grad_norm, double learning_rate);
  enum class Moment { kInTraining, kAfterTraining };
  EvaluationRequest evaluation_request(tasks::Split split, Moment moment) const;
  std::optional<std::size_t> most_table_rows(Moment moment) const;
  // Throws Interrupted on all ranks when stop_requested ended it.
  nlohmann::ordered_json evaluate_and_record();
  void remember_best(const nlohmann::ordered_json& metrics);
  void follow_metric(const nlohmann::ordered_json& metrics);
  // Before the first step: nothing that another run left in output_dir may pass for this one's.
  void tidy_output_dir(const std::optional<std::filesystem::path>& resume);
  void save();
  void write_checkpoint();
  void load_best_model();
  bool agreed_to_stop();
  void count_tokens(const StepRecord& record);
  void settle_token_count();
  struct StepLoss {
    double own, mean;  // loss of this rank's shards and of all
  };
  void report_progress(const StepLoss& loss, double learning_rate, const tasks::BatchSize& batch,
                       double step_seconds);
  void log(nlohmann::ordered_json entry);
  nlohmann::ordered_json final_metrics();
  StepTimes step_times() const;
  double seconds_of_training() const;

  TrainerParts parts_;
  struct Int8Evaluation {
    const nn::Int8Linears& linears;
    nn::Precision precision = nn::Precision::kFloat32;
  };
  std::optional<Int8Evaluation> int8_;  // without it evaluations run as trained
  MemoryTracker memory_;
  TrainingPlan plan_;
  TrainerState state_;
  ResumeState resume_;  // losses since the last log and the history of the steps live here
  std::optional<LearningRate> learning_rate_;
  // Totals over all shards, the same on every rank, that have not reached state_ yet, or never do.
  struct Counts {
    std::vector<double> losses;                  // by logical shard, since the last log
    std::int64_t uncounted_tokens = 0;           // not in state_.num_input_tokens_seen yet
    std::int64_t uncounted_computed_tokens = 0;  // not in state_.total_flos yet
    double computed_tokens = 0;                  // in this session, padding included
  };
  // Facts about this set of ranks, from its first step on.
  struct Session {
    std::chrono::steady_clock::time_point start = {};
    double preparation_seconds = 0;  // making the weights ready for an evaluation without training
    double seconds_before = 0;       // training time of earlier sets of ranks
    std::int64_t first_step = 0;     // where this run's training began: that of `resume`
    bool continued = false;          // by continue_from()
    bool begin_reported = false;     // to the observers
    bool warned_not_finite = false;
    std::optional<std::int64_t> saved_step = {};
    nlohmann::ordered_json final_metrics;  // metrics of the training, once it is over
  };
  struct Speed {
    Profile profile = {};  // profile of the steps, together with:
    double step_seconds = 0;
    double smoothed_step_seconds = 0;
    double smoothed_tokens_per_second = 0;
    double smoothed_flops_per_second = 0;
  };
  Counts counts_;
  Session session_;
  Speed speed_;
};

}  // namespace tandem::trainer
