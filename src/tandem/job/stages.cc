#include "tandem/job/stages.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/job/closing_report.h"
#include "tandem/job/job_output.h"
#include "tandem/job/memory_plan.h"
#include "tandem/job/quantize.h"
#include "tandem/trainer/trainer.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using tasks::Split;

void print_step_times(const trainer::StepTimes& times, Console& console) {
  if (times.total <= 0) return;  // a run without remaining work
  const double gradients = 100 * times.gradients / times.total;
  const double optimizer = 100 * times.optimizer / times.total;
  console.script_line(
      "INFO", fmt::format("time of the steps: {:.1f} % forward and backward, {:.1f} % sums of "
                          "gradients and waits for other ranks, {:.1f} % optimizer",
                          100 - gradients - optimizer, gradients, optimizer));
}

// The stages around the trainer, with their common state.
class Stages {
 public:
  Stages(const TrainingRun& run, comm::Communicator& communicator,
         const dist::GradientEngine& gradients, RunReports& reports, trainer::Trainer& trainer,
         JobCallbacks& callbacks)
      : run_(run),
        communicator_(communicator),
        gradients_(gradients),
        reports_(reports),
        trainer_(trainer),
        callbacks_(callbacks) {}

  bool is_over(Stage stage) const { return callbacks_.stage() > stage; }
  void end_stage(Stage stage);
  Outcome stopped() const;
  void save_trained(trainer::TrainResult result);
  Outcome quantize();
  void evaluate(Split split);

 private:
  bool is_main() const { return communicator_.rank() == 0; }
  bool saves_model() const {
    return is_main() || (training().save_on_each_node && gradients_.node_leader());
  }
  Console& console() const { return run_.observers.console; }

  void add_results(const std::string& stage, const ordered_json& metrics);
  void save_model(const trainer::TrainResult& result);
  void evaluate_set(Split split, const std::string& suffix);
  void report_metrics(Split split, ordered_json metrics, const std::string& suffix = "");

  const trainer::TrainingArguments& training() const { return run_.training; }

  const TrainingRun& run_;
  comm::Communicator& communicator_;
  const dist::GradientEngine& gradients_;
  RunReports& reports_;
  trainer::Trainer& trainer_;
  JobCallbacks& callbacks_;
  std::optional<Quantized> quantized_;
  ordered_json results_;  // results of the sets of a split that were evaluated
};

// A stage is over when its files exist: the writing process may die before that.
void Stages::end_stage(Stage stage) {
  if (!callbacks_.is_elastic()) return;
  communicator_.barrier();
  callbacks_.stage_is_over(stage);
}

void Stages::add_results(const std::string& stage, const ordered_json& metrics) {
  callbacks_.add_result(stage, metrics);
  if (is_main()) reports_.add_results(stage, metrics);
}

void Stages::save_trained(trainer::TrainResult result) {
  result.metrics["train_samples"] = run_.model.task.num_train_features();
  if (saves_model()) run_.output.volume->during([&] { save_model(result); });
  add_results("train", result.metrics);
}

void Stages::save_model(const trainer::TrainResult& result) {
  const fs::path output_dir = training().output_dir;
  console().saving(output_dir);
  run_.model.task.save_pretrained(output_dir, run_.weights.state->weights());
  write_file(output_dir / "training_args.json", run_.request.training_args_json());
  if (!is_main()) return;
  console().detail("files",
                   "training_args.json replaces training_args.bin, which only Python can write");
  print_step_times(result.step_times, console());
  console().metrics_table("train", result.metrics);
  save_metrics(output_dir, "train", result.metrics);
  write_file(output_dir / "trainer_state.json", trainer_.state().to_json());
}

Outcome Stages::stopped() const {
  const std::int64_t step = trainer_.state().global_step;
  const std::string by = run_.stop.name();
  console().warning(
      step == 0 ? fmt::format("stopped by {} before the first step: nothing was trained", by)
                : fmt::format("stopped by {} after step {}; run the same command again to continue "
                              "from {}/checkpoint-{}",
                              by, step, training().output_dir, step));
  return Outcome::kStopped;
}

Outcome Stages::quantize() {
  quantized_ = job::quantize(run_, communicator_, reports_.observer(), saves_model());
  if (!quantized_) return Outcome::kRejected;
  report_metrics(Split::kEval, quantized_->metrics);
  trainer_.evaluate_int8(quantized_->linears, nn::Precision::kFloat32);
  return Outcome::kDone;
}

void Stages::evaluate(Split split) {
  const bool eval = split == Split::kEval;
  console().script_line("INFO", eval ? "*** Evaluate ***" : "*** Predict ***");
  const std::vector<std::string> suffixes = run_.task.set_suffixes(split);
  for (std::size_t set = 0; set < suffixes.size(); ++set) {
    if (suffixes.size() > 1) run_.task.select_set(split, set);
    evaluate_set(split, suffixes[set]);
  }
}

void Stages::evaluate_set(Split split, const std::string& suffix) {
  const bool eval = split == Split::kEval;
  ordered_json metrics = trainer_.evaluate(split);
  // As in run_qa.py predictions are not logged, and the log is what adds the epoch.
  if (eval && run_.request.arguments.training.do_train)
    metrics["epoch"] = trainer::whole_zero(trainer_.state().epoch);
  if (eval) trainer_.add_token_count(metrics);
  if (eval) reports_.observer().log(metrics);
  report_metrics(split, std::move(metrics), suffix);
}

// The results of a split's sets are kept together.
void Stages::report_metrics(Split split, ordered_json metrics, const std::string& suffix) {
  const char* name = split == Split::kEval ? "eval" : "predict";
  metrics[fmt::format("{}_samples", name)] = run_.model.task.num_samples(split);
  run_.task.complete_results(split, metrics);
  ordered_json named = ordered_json::object();
  for (const auto& [key, value] : metrics.items()) named[key + suffix] = value;
  add_results(name, named);
  if (!is_main()) return;
  console().metrics_table(name, named);
  if (suffix.empty()) results_ = ordered_json::object();
  results_.update(named);
  if (split == Split::kPredict && !run_.task.saves_predict_results()) return;
  run_.output.volume->during([&] { save_metrics(training().output_dir, name, results_); });
}

trainer::TrainerParts trainer_parts(const TrainingRun& run, comm::Communicator& communicator,
                                    dist::GradientEngine& gradients, RunReports& reports,
                                    JobCallbacks& callbacks) {
  return {.arguments = run.training,
          .task = run.model.task,
          .kernels = run.machine.context(),
          .communicator = communicator,
          .model = *run.weights.state,
          .gradients = gradients,
          .optimizer = *run.weights.optimizer,
          .observer = reports.observer(),
          .stop_requested = run.stop.requested,
          .arguments_json = run.request.training_args_json(),
          .data_fingerprint = run.model.fingerprint,
          .callbacks = callbacks,
          .volume = run.output.volume};
}

// The stages after training.
Outcome evaluate_all(const TrainingRun& run, Stages& stages) {
  const trainer::TrainingArguments& training = run.training;
  if (run.request.arguments.quantization.apply_quantization) {
    // The predictions belong to this model: after a restart they are made again.
    if (const Outcome outcome = stages.quantize(); outcome != Outcome::kDone) return outcome;
  } else if (training.do_eval && !stages.is_over(Stage::kEvaluate)) {
    stages.evaluate(Split::kEval);
  }
  if (!stages.is_over(Stage::kEvaluate)) stages.end_stage(Stage::kEvaluate);
  if (training.do_predict && !stages.is_over(Stage::kPredict)) {
    stages.evaluate(Split::kPredict);
    stages.end_stage(Stage::kPredict);
  }
  return Outcome::kDone;
}

}  // namespace

Outcome compute(const TrainingRun& run, comm::Communicator& communicator,
                dist::GradientEngine& gradients, RunReports& reports, JobCallbacks& callbacks,
                const Progress& progress) {
  trainer::Trainer trainer(trainer_parts(run, communicator, gradients, reports, callbacks));
  if (!progress.trainer.empty()) trainer.continue_from({progress.trainer, progress.records});
  const trainer::TrainingArguments& training = run.training;
  if (run.weights.loaded.int8)
    trainer.evaluate_int8(*run.weights.loaded.int8, precision_of(training));
  Stages stages(run, communicator, gradients, reports, trainer, callbacks);
  if (training.do_train && !stages.is_over(Stage::kTrain)) {
    auto uninterrupted = run.stop.during_training();  // until the model is saved
    trainer::TrainResult result = trainer.train(run.output.resume);
    if (result.preempted) return stages.stopped();
    stages.save_trained(std::move(result));
    uninterrupted.reset();
    stages.end_stage(Stage::kTrain);
  }
  if (const Outcome outcome = evaluate_all(run, stages); outcome != Outcome::kDone) return outcome;
  Console& console = run.observers.console;
  print_memory_used(run.planned_memory, callbacks.is_elastic(), communicator, console);
  run.output.volume->during([&] { reports.write(trainer.state(), trainer.step_history()); });
  if (communicator.rank() == 0) print_closing_report(run);
  return Outcome::kDone;
}

}  // namespace tandem::job
