#include "tandem/job/job.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tandem/comm/api/texts.h"
#include "tandem/core/file.h"
#include "tandem/job/job_output.h"
#include "tandem/job/machine.h"
#include "tandem/job/memory_plan.h"
#include "tandem/job/model.h"
#include "tandem/job/output_place.h"
#include "tandem/job/quantize.h"
#include "tandem/job/run_reports.h"
#include "tandem/job/start_report.h"
#include "tandem/trainer/trainer.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using tasks::Split;

// What the job trains with and where it writes, once the checkpoint to go on from has been read.
struct Settings {
  trainer::TrainingArguments training;
  PreparedOutput output;
};

Settings settle(const Arguments& arguments, const OutputPlace& place,
                comm::Communicator& communicator, Console& console) {
  Settings settings{.training = arguments.training, .output = {}};
  trainer::TrainingArguments& training = settings.training;
  training.do_train = arguments.trains();
  settings.output = prepare_output(training, place.same_job(), communicator, console);
  place.keep();
  split_batch_sizes(training.logical_shards.value_or(communicator.size()), training);
  if (settings.output.resume && training.do_train) {
    adopt_checkpoint_settings(*settings.output.resume, communicator.size(), training, console);
  }
  return settings;
}

// The plan in bytes at the peak of this rank's node. Throws ConfigError where it cannot be.
std::size_t plan_job_memory(const Arguments& arguments, const trainer::TrainingArguments& training,
                            const PlannedTask& task, const Machine& machine,
                            const dist::GradientEngine& gradients, comm::Communicator& communicator,
                            Console& console) {
  const std::size_t of_quantization = quantization_bytes(arguments, task.of_trainer);
  MemoryPlan plan = plan_memory(training, machine.context(), communicator, gradients, task);
  plan.quantization =
      of_quantization + compared_output_bytes(arguments.quantization, task.of_job, communicator);
  const std::size_t planned = print_memory_plan(plan, communicator, console);
  check_memory_limits(plan, communicator, console);
  return planned;
}

void print_step_times(const trainer::StepTimes& times, Console& console) {
  if (times.total <= 0) return;  // a run that had nothing left to do
  const double gradients = 100 * times.gradients / times.total;
  const double optimizer = 100 * times.optimizer / times.total;
  console.script_line(
      "INFO", fmt::format("time of the steps: {:.1f} % forward and backward, {:.1f} % sums of "
                          "gradients and waits for other ranks, {:.1f} % optimizer",
                          100 - gradients - optimizer, gradients, optimizer));
}

// The phases that compute, with what all of them use.
class Stages {
 public:
  struct Parts {
    const Request& request;
    const trainer::TrainingArguments& training;
    tasks::JobTask& of_job;
    const Model& model;
    const Weights& weights;
    const Machine& machine;
    const World& world;
    const Process& process;
    RunReports& reports;
    trainer::Trainer& trainer;
  };
  explicit Stages(const Parts& parts) : parts_(parts) {}

  Outcome run(const std::optional<fs::path>& resume);

 private:
  bool saves_model() const {
    return parts_.world.is_main() ||
           (parts_.training.save_on_each_node && parts_.weights.gradients->node_leader());
  }
  Console& console() const { return parts_.process.console; }

  Outcome train(const std::optional<fs::path>& resume);
  Outcome stopped() const;
  void save_trained(ordered_json metrics);
  Outcome quantize();
  void evaluate(Split split);
  void evaluate_set(Split split, const std::string& suffix);
  void report_metrics(Split split, ordered_json metrics, const std::string& suffix = "");

  const Parts& parts_;
  std::optional<Quantized> quantized_;
  ordered_json results_;  // of the sets of a split that were evaluated
};

Outcome Stages::run(const std::optional<fs::path>& resume) {
  if (parts_.weights.loaded.int8) parts_.trainer.evaluate_int8(&*parts_.weights.loaded.int8);
  if (parts_.training.do_train) {
    if (const Outcome outcome = train(resume); outcome != Outcome::kDone) return outcome;
  }
  if (parts_.request.arguments.quantization.apply_quantization) {
    if (const Outcome outcome = quantize(); outcome != Outcome::kDone) return outcome;
  } else if (parts_.training.do_eval) {
    evaluate(Split::kEval);
  }
  if (parts_.training.do_predict) evaluate(Split::kPredict);
  return Outcome::kDone;
}

Outcome Stages::train(const std::optional<fs::path>& resume) {
  const auto uninterrupted = parts_.process.stop.during_training();  // until the model is saved
  trainer::TrainResult result = parts_.trainer.train(resume);
  if (result.preempted) return stopped();
  if (!saves_model()) return Outcome::kDone;
  const fs::path output_dir = parts_.training.output_dir;
  console().saving(output_dir);
  parts_.model.task.save_pretrained(output_dir, parts_.weights.state->weights());
  write_file(output_dir / "training_args.json", parts_.request.training_args_json());
  if (!parts_.world.is_main()) return Outcome::kDone;
  console().detail(
      "files",
      "training_args.json takes the place of training_args.bin, which only Python can write");
  print_step_times(result.step_times, console());
  save_trained(std::move(result.metrics));
  return Outcome::kDone;
}

Outcome Stages::stopped() const {
  const std::int64_t step = parts_.trainer.state().global_step;
  const std::string by = parts_.process.stop.name();
  console().warning(
      step == 0 ? fmt::format("stopped by {} before the first step: nothing was trained", by)
                : fmt::format("stopped by {} after step {}; run the same command again to go on "
                              "from {}/checkpoint-{}",
                              by, step, parts_.training.output_dir, step));
  return Outcome::kStopped;
}

void Stages::save_trained(ordered_json metrics) {
  const fs::path output_dir = parts_.training.output_dir;
  metrics["train_samples"] = parts_.model.task.num_train_features();
  console().metrics_table("train", metrics);
  save_metrics(output_dir, "train", metrics);
  parts_.reports.add_results("train", metrics);
  write_file(output_dir / "trainer_state.json", parts_.trainer.state().to_json());
}

Outcome Stages::quantize() {
  quantized_ = job::quantize({.options = parts_.request.arguments.quantization,
                              .training = parts_.training,
                              .of_job = parts_.of_job,
                              .task = parts_.model.task,
                              .tokenizer = *parts_.model.tokenizer,
                              .context = parts_.machine.context(),
                              .communicator = *parts_.world.communicator,
                              .weights = parts_.weights.state->weights(),
                              .saves = saves_model(),
                              .observer = parts_.reports.observer(),
                              .console = console()});
  if (!quantized_) return Outcome::kRejected;
  report_metrics(Split::kEval, quantized_->metrics);
  parts_.trainer.evaluate_int8(&quantized_->linears);
  return Outcome::kDone;
}

void Stages::evaluate(Split split) {
  const bool eval = split == Split::kEval;
  console().script_line("INFO", eval ? "*** Evaluate ***" : "*** Predict ***");
  const std::vector<std::string> suffixes = parts_.of_job.set_suffixes(split);
  for (std::size_t set = 0; set < suffixes.size(); ++set) {
    if (suffixes.size() > 1) parts_.of_job.select_set(split, set);
    evaluate_set(split, suffixes[set]);
  }
}

void Stages::evaluate_set(Split split, const std::string& suffix) {
  const bool eval = split == Split::kEval;
  ordered_json metrics = parts_.trainer.evaluate(split);
  // As in run_qa.py predictions are not logged, and the log is what adds the epoch.
  if (eval && parts_.request.arguments.training.do_train)
    metrics["epoch"] = parts_.trainer.state().epoch;
  if (eval) parts_.trainer.add_token_count(metrics);
  if (eval) parts_.reports.observer().log(metrics);
  report_metrics(split, std::move(metrics), suffix);
}

// The results of a split's sets are kept together.
void Stages::report_metrics(Split split, ordered_json metrics, const std::string& suffix) {
  const char* name = split == Split::kEval ? "eval" : "predict";
  metrics[fmt::format("{}_samples", name)] = parts_.model.task.num_features(split);
  if (!parts_.world.is_main()) return;
  ordered_json named = ordered_json::object();
  for (const auto& [key, value] : metrics.items()) named[key + suffix] = value;
  console().metrics_table(name, named);
  if (suffix.empty()) results_ = ordered_json::object();
  results_.update(named);
  if (split == Split::kEval || parts_.of_job.saves_predict_results())
    save_metrics(parts_.training.output_dir, name, results_);
  parts_.reports.add_results(name, named);
}

// With everything loaded and planned: the reports, the trainer, and the stages with them.
Outcome compute(const Request& request, const Settings& settings, tasks::JobTask& task,
                const Model& model, const Weights& weights, const Machine& machine,
                const World& world, const Process& process, std::size_t planned_memory,
                std::chrono::system_clock::time_point started) {
  comm::Communicator& communicator = *world.communicator;
  const trainer::TrainingArguments& training = settings.training;
  RunReports reports({.request = request,
                      .task = task,
                      .environment = process.environment,
                      .main_process = world.is_main(),
                      .world_size = communicator.size(),
                      .model_config_json = task.model_config().to_json(task.architecture()),
                      .machine = machine_facts(machine.context(), machine.rank_threads(),
                                               machine.peak_flops(), communicator, training.bf16),
                      .started = started,
                      .console = process.console});
  trainer::Trainer trainer({.arguments = training,
                            .task = model.task,
                            .kernels = machine.context(),
                            .communicator = communicator,
                            .model = *weights.state,
                            .gradients = *weights.gradients,
                            .optimizer = weights.optimizer.get(),
                            .observer = reports.observer(),
                            .stop_requested = process.stop.requested,
                            .arguments_json = request.training_args_json(),
                            .data_fingerprint = model.fingerprint});
  const Stages::Parts parts{request, training, task,    model,   weights,
                            machine, world,    process, reports, trainer};
  Stages stages(parts);
  const Outcome outcome = stages.run(settings.output.resume);
  if (outcome != Outcome::kDone) return outcome;
  print_memory_used(planned_memory, communicator, process.console);
  reports.write(trainer.state());
  return Outcome::kDone;
}

}  // namespace

Outcome run(const Request& asked, tasks::JobTask& task, const World& world,
            const Process& process) {
  const auto started = std::chrono::system_clock::now();
  Request request = asked;
  const Arguments& arguments = request.arguments;
  comm::Communicator& communicator = *world.communicator;
  Console& console = process.console;
  print_start(request, task, world.identity, communicator, console);
  if (!arguments.trains() && !arguments.training.do_eval && !arguments.training.do_predict) {
    console.warning("nothing is to do: pass --do_train, --do_eval or --do_predict");
    return Outcome::kDone;
  }
  warn_of_no_training(arguments, task.examples(), world.is_main(), console);
  const OutputPlace place(request, process.environment, communicator, console);
  agree(communicator, "command line", request.lines());
  Settings settings = settle(arguments, place, communicator, console);

  Machine machine(process.environment, precision_of(settings.training), communicator);
  console.set_peak_flops(machine.peak_flops());
  machine.describe(communicator, console);

  const Model model =
      open_model(arguments, process.environment, machine, communicator, process.downloads, console,
                 task, process.families, settings.training);
  const Weights weights =
      load_weights(arguments, settings.training, model, task, machine, communicator, console);
  print_estimates(settings.training, model.task, *weights.state, *weights.gradients, communicator,
                  console);
  const std::size_t planned = plan_job_memory(arguments, settings.training, {task, model.task},
                                              machine, *weights.gradients, communicator, console);
  const Outcome outcome =
      compute(request, settings, task, model, weights, machine, world, process, planned, started);
  if (outcome == Outcome::kDone) place.finish();
  return outcome;
}

}  // namespace tandem::job
