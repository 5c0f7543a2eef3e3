#include "tandem/job/job.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "tandem/comm/api/texts.h"
#include "tandem/core/file.h"
#include "tandem/core/interruption.h"
#include "tandem/core/json.h"
#include "tandem/core/volume.h"
#include "tandem/job/agreed_inputs.h"
#include "tandem/job/closing_report.h"
#include "tandem/job/elastic.h"
#include "tandem/job/job_output.h"
#include "tandem/job/machine.h"
#include "tandem/job/memory_plan.h"
#include "tandem/job/model.h"
#include "tandem/job/output_directory.h"
#include "tandem/job/quantize.h"
#include "tandem/job/run_reports.h"
#include "tandem/job/start_report.h"
#include "tandem/job/state_transfer.h"
#include "tandem/trainer/trainer.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using tasks::Split;

// The job's arguments and output place, after the checkpoint to resume from has been read.
struct Settings {
  trainer::TrainingArguments training;
  PreparedOutput output;
  std::optional<VolumeMark> volume;  // of output_dir
};

// Decisions made once for a job, before its parts exist.
struct Start {
  PreparedOutput output;
  int shards = 1;  // logical shards, unless a flag sets them
};

// In an elastic job one worker chooses the output directory, looks for a checkpoint and counts the
// shards, once, and all use its results.
Start settle_start(Request& request, std::optional<OutputDirectory>& directory,
                   const Environment& environment, const World& world, Console& console) {
  trainer::TrainingArguments training = request.arguments.training;
  training.do_train = request.arguments.trains();
  PreparedOutput output;
  const auto prepare = [&] {
    directory.emplace(request, environment, *world.communicator, console);
    agree(*world.communicator, "command line", request.lines());
    training.output_dir = request.arguments.training.output_dir;
    output = prepare_output(training, *directory, *world.communicator, console);
    directory->keep();
  };
  if (!world.channel) {
    prepare();
    return {std::move(output), world.communicator->size()};
  }
  const auto decide = [&] {
    prepare();
    return to_text({training.output_dir, output.resume ? output.resume->native() : "",
                    world.channel->info().shards});
  };
  const Decision decision = decision_from(world.channel->decision(decide));
  set_output_dir(request, decision.output_dir);
  if (!decision.resume.empty()) output.resume = decision.resume;
  return {std::move(output), decision.shards};
}

Settings settle(Request& request, std::optional<OutputDirectory>& directory,
                const Environment& environment, const World& world, Console& console) {
  Start start = settle_start(request, directory, environment, world, console);
  Settings settings;
  settings.output = std::move(start.output);
  settings.training = request.arguments.training;
  settings.volume.emplace(settings.training.output_dir);
  trainer::TrainingArguments& training = settings.training;
  training.do_train = request.arguments.trains();
  split_batch_sizes(training.logical_shards.value_or(start.shards), training);
  if (settings.output.resume && training.do_train)
    adopt_checkpoint_settings(*settings.output.resume, start.shards, training, console);
  if (world.channel && !training.logical_shards) training.logical_shards = start.shards;
  return settings;
}

// The plan in bytes at the peak of this rank's node. Throws ConfigError if it exceeds the memory.
std::size_t plan_job_memory(const Arguments& arguments, const trainer::TrainingArguments& training,
                            const PlannedTask& task, const Machine& machine,
                            const dist::GradientEngine& gradients, const World& world,
                            Console& console) {
  comm::Communicator& communicator = *world.communicator;
  const std::size_t of_quantization = quantization_bytes(arguments, task.of_trainer);
  MemoryPlan plan = plan_memory(training, machine.context(), communicator, gradients, task,
                                world.channel ? world.channel->info().workers : 0);
  plan.quantization =
      of_quantization + compared_output_bytes(arguments.quantization, task.of_job, communicator);
  const std::size_t planned = print_memory_plan(plan, communicator, console);
  check_memory_limits(plan, communicator, console);
  return planned;
}

void print_step_times(const trainer::StepTimes& times, Console& console) {
  if (times.total <= 0) return;  // a run without remaining work
  const double gradients = 100 * times.gradients / times.total;
  const double optimizer = 100 * times.optimizer / times.total;
  console.script_line(
      "INFO", fmt::format("time of the steps: {:.1f} % forward and backward, {:.1f} % sums of "
                          "gradients and waits for other ranks, {:.1f} % optimizer",
                          100 - gradients - optimizer, gradients, optimizer));
}

// The phases that compute, with their common state.
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
    const dist::GradientEngine& gradients;
    const VolumeMark& volume;
    ViewCallbacks* callbacks = nullptr;  // for an elastic job
  };
  explicit Stages(const Parts& parts) : parts_(parts) {}

  Outcome run(const std::optional<fs::path>& resume);

 private:
  bool saves_model() const {
    return parts_.world.is_main() ||
           (parts_.training.save_on_each_node && parts_.gradients.node_leader());
  }
  Console& console() const { return parts_.process.console; }

  bool is_over(Stage stage) const {
    return parts_.callbacks != nullptr && parts_.callbacks->stage() > stage;
  }
  void end_stage(Stage stage);
  void add_results(const std::string& stage, const ordered_json& metrics);

  Outcome train(const std::optional<fs::path>& resume);
  void save_model(const trainer::StepTimes& times, const ordered_json& metrics);
  Outcome stopped() const;
  void save_trained(const ordered_json& metrics);
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
  if (parts_.training.do_train && !is_over(Stage::kTrain)) {
    if (const Outcome outcome = train(resume); outcome != Outcome::kDone) return outcome;
    end_stage(Stage::kTrain);
  }
  if (parts_.request.arguments.quantization.apply_quantization) {
    // The predictions belong to this model: after a restart they are made again.
    if (const Outcome outcome = quantize(); outcome != Outcome::kDone) return outcome;
  } else if (parts_.training.do_eval && !is_over(Stage::kEvaluate)) {
    evaluate(Split::kEval);
  }
  if (!is_over(Stage::kEvaluate)) end_stage(Stage::kEvaluate);
  if (parts_.training.do_predict && !is_over(Stage::kPredict)) {
    evaluate(Split::kPredict);
    end_stage(Stage::kPredict);
  }
  return Outcome::kDone;
}

// A stage is over when its files exist: the writing process may die before that.
void Stages::end_stage(Stage stage) {
  if (parts_.callbacks == nullptr) return;
  parts_.world.communicator->barrier();
  parts_.callbacks->stage_is_over(stage);
}

void Stages::add_results(const std::string& stage, const ordered_json& metrics) {
  if (parts_.callbacks != nullptr) parts_.callbacks->add_result(stage, metrics);
  if (parts_.world.is_main()) parts_.reports.add_results(stage, metrics);
}

Outcome Stages::train(const std::optional<fs::path>& resume) {
  const auto uninterrupted = parts_.process.stop.during_training();  // until the model is saved
  trainer::TrainResult result = parts_.trainer.train(resume);
  if (result.preempted) return stopped();
  result.metrics["train_samples"] = parts_.model.task.num_train_features();
  if (saves_model()) {
    parts_.volume.during([&] { save_model(result.step_times, result.metrics); });
  }
  add_results("train", result.metrics);
  return Outcome::kDone;
}

void Stages::save_model(const trainer::StepTimes& times, const ordered_json& metrics) {
  const fs::path output_dir = parts_.training.output_dir;
  console().saving(output_dir);
  parts_.model.task.save_pretrained(output_dir, parts_.weights.state->weights());
  write_file(output_dir / "training_args.json", parts_.request.training_args_json());
  if (!parts_.world.is_main()) return;
  console().detail("files",
                   "training_args.json replaces training_args.bin, which only Python can write");
  print_step_times(times, console());
  save_trained(metrics);
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

void Stages::save_trained(const ordered_json& metrics) {
  const fs::path output_dir = parts_.training.output_dir;
  console().metrics_table("train", metrics);
  save_metrics(output_dir, "train", metrics);
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
    metrics["epoch"] = trainer::whole_zero(parts_.trainer.state().epoch);
  if (eval) parts_.trainer.add_token_count(metrics);
  if (eval) parts_.reports.observer().log(metrics);
  report_metrics(split, std::move(metrics), suffix);
}

// The results of a split's sets are kept together.
void Stages::report_metrics(Split split, ordered_json metrics, const std::string& suffix) {
  const char* name = split == Split::kEval ? "eval" : "predict";
  metrics[fmt::format("{}_samples", name)] = parts_.model.task.num_samples(split);
  parts_.of_job.complete_results(split, metrics);
  ordered_json named = ordered_json::object();
  for (const auto& [key, value] : metrics.items()) named[key + suffix] = value;
  add_results(name, named);
  if (!parts_.world.is_main()) return;
  console().metrics_table(name, named);
  if (suffix.empty()) results_ = ordered_json::object();
  results_.update(named);
  if (split == Split::kPredict && !parts_.of_job.saves_predict_results()) return;
  parts_.volume.during([&] { save_metrics(parts_.training.output_dir, name, results_); });
}

// State shared by the computing phases, once everything is loaded and planned.
struct Prepared {
  const Request& request;
  const Settings& settings;
  tasks::JobTask& task;
  const Model& model;
  Weights& weights;
  std::optional<LockFile>& output_lock;
  const Machine& machine;
  const Process& process;
  std::size_t planned_memory;
  std::chrono::system_clock::time_point started;
};

std::unique_ptr<RunReports> make_reports(const Prepared& job, const World& world) {
  const bool bf16 = job.settings.training.bf16;
  return std::make_unique<RunReports>(RunReports::Parts{
      .request = job.request,
      .task = job.task,
      .environment = job.process.environment,
      .main_process = world.is_main(),
      .world_size = world.communicator->size(),
      .model_config_json = job.task.model_config().to_json(job.task.architecture()),
      .machine = machine_facts(job.machine.context(), job.machine.rank_threads(),
                               job.machine.peak_flops(), *world.communicator, bf16),
      .started = job.started,
      .console = job.process.console,
      .watcher = job.process.watcher,
      .main_watcher = job.process.main_watcher});
}

// The trainer and its stages. `progress`: for an elastic job, with its callbacks.
Outcome compute(const Prepared& job, const World& world, dist::GradientEngine& gradients,
                RunReports& reports, const Progress* progress, ViewCallbacks* callbacks) {
  const trainer::TrainingArguments& training = job.settings.training;
  trainer::Trainer trainer({.arguments = training,
                            .task = job.model.task,
                            .kernels = job.machine.context(),
                            .communicator = *world.communicator,
                            .model = *job.weights.state,
                            .gradients = gradients,
                            .optimizer = job.weights.optimizer.get(),
                            .observer = reports.observer(),
                            .stop_requested = job.process.stop.requested,
                            .arguments_json = job.request.training_args_json(),
                            .data_fingerprint = job.model.fingerprint,
                            .callbacks = callbacks,
                            .volume = &*job.settings.volume});
  if (progress != nullptr && !progress->trainer.empty())
    trainer.go_on({progress->trainer, progress->records});
  const Stages::Parts parts{
      job.request, training, job.task, job.model, job.weights,          job.machine, world,
      job.process, reports,  trainer,  gradients, *job.settings.volume, callbacks};
  Stages stages(parts);
  const Outcome outcome = stages.run(job.settings.output.resume);
  if (outcome != Outcome::kDone) return outcome;
  Console& console = job.process.console;
  print_memory_used(job.planned_memory, callbacks != nullptr, *world.communicator, console);
  job.settings.volume->during([&] { reports.write(trainer.state(), trainer.step_history()); });
  if (world.is_main())
    print_closing_report({job.request, job.task, job.process.program, job.started}, console);
  return Outcome::kDone;
}

Progress sync_learned(elastic::AgentChannel& channel, const elastic::Assignment& assignment,
                      dist::ModelState& state, dist::GradientEngine& gradients,
                      comm::Communicator& communicator, StateTransfer& transfer, Console& console) {
  SyncedProgress synced =
      synchronize_state(channel, assignment, state, gradients, communicator, transfer.learner());
  if (synced.moved && transfer.learner() != nullptr)
    console.warning_of_host("the state that was learned was not the job's: it came in the view");
  transfer.forget();
  return std::move(synced.progress);
}

// One view of an elastic job, to the end of the job or of the view (CommError, ViewChanges).
Outcome compute_in_view(const Prepared& job, const World& view, elastic::AgentChannel& channel,
                        const elastic::Assignment& assignment, StateTransfer& transfer,
                        std::unique_ptr<RunReports>& reports) {
  comm::Communicator& communicator = *view.communicator;
  Weights& weights = job.weights;
  const kernels::Context& context = job.machine.context();
  Console& console = job.process.console;
  console.set_main_process(view.is_main());
  if (view.is_main()) keep_locked(job.settings.training.output_dir, job.output_lock);
  if (!reports) console.fact("ranks", communicator.describe());
  dist::GradientEngineOptions options = engine_options(job.settings.training, communicator.size());
  transfer.take_part_in(options);
  dist::GradientEngine gradients(&communicator, context, *weights.state, options);
  if (!reports) log_memory_location(gradients, console);
  if (gradients.node_leader() && transfer.learner() == nullptr) weights.state->clear_remains();
  communicator.barrier();
  if (weights.optimizer) gradients.finish_update(context, *weights.optimizer);
  const Progress progress =
      sync_learned(channel, assignment, *weights.state, gradients, communicator, transfer, console);
  // A joining node has received the job's weights by now and reads none: the others would wait for
  // it.
  fill_weights(job.request.arguments, job.settings.training, job.model, job.task, job.machine,
               communicator, gradients.node_leader(), weights, console);
  TANDEM_CHECK(!progress.trainer.empty() || job.settings.output.resume || !weights.state->step(),
               "weights of step {} whose past nobody knows", weights.state->step());
  // The previous main process continues with its data; a new one begins with none.
  if (!reports || reports->is_main() != view.is_main()) {
    reports.reset();
    reports = make_reports(job, view);
    for (const auto& [stage, metrics] : progress.results) reports->add_results(stage, metrics);
  }
  // Otherwise a checkpoint is read into it now.
  if (gradients.node_leader() && !progress.trainer.empty())
    transfer.source().settled(weights.state->step());
  ViewCallbacks callbacks(channel, assignment, progress);
  if (callbacks.paused() && callbacks.stage() != Stage::kTrain)
    raise<trainer::ViewChanges>("the job waits for more nodes");
  const DivertedLog diverted(console, callbacks);
  const Outcome outcome = compute(job, view, gradients, *reports, &progress, &callbacks);
  communicator.barrier();  // no rank is done before the files of the job exist
  return outcome;
}

int done_code(Outcome outcome) {
  return outcome == Outcome::kStopped ? 143 : outcome == Outcome::kDone ? 0 : 1;
}

// Until the job is over: the end of one view begins the next.
Outcome compute_in_views(const Prepared& job, const World& alone) {
  elastic::AgentChannel& channel = *alone.channel;
  std::unique_ptr<RunReports> reports;
  StateTransfer transfer(alone, job.machine.context(), job.weights, job.model.task,
                         job.settings.training);
  elastic::AgentChannel::Ready ready =
      ready_to_compute(0, *job.settings.training.logical_shards, job.machine.arithmetic(),
                       job.request.lines() + describe_inputs(job.task, job.model));
  while (true) {
    ready.step = job.weights.state->reachable_step();
    const elastic::Assignment assignment = channel.next_view(ready, [&] { transfer.learn(); });
    bool as_agreed = false;
    try {
      const World view = join_view(channel, assignment, alone);
      const EnteredView entered(channel, assignment.view, *view.communicator);
      const InterruptionScope leaving(channel.stop_ordered());
      try {
        const Outcome outcome = compute_in_view(job, view, channel, assignment, transfer, reports);
        channel.done(done_code(outcome));
        view.communicator->close();
        return outcome;
      } catch (const trainer::ViewChanges&) {
        as_agreed = true;
        view.communicator->close();
      } catch (const Interrupted&) {
        if (!channel.stop_ordered()) throw;  // a user requests the end of the job
      }
    } catch (const CommError& error) {
      send_failure(channel, assignment.view, error);
    }
    channel.left(assignment.view, job.weights.state->reachable_step(), as_agreed);
  }
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
  std::optional<OutputDirectory> directory;  // on ranks that have one
  Settings settings = settle(request, directory, process.environment, world, console);

  Machine machine(process.environment, precision_of(settings.training), communicator);
  console.set_peak_flops(machine.peak_flops());
  machine.describe(communicator, console);

  const Model model =
      open_model(arguments, process.environment, machine, communicator, process.downloads, console,
                 task, process.families, settings.training);
  Weights weights =
      load_weights(arguments, settings.training, model, task, machine, world, console);
  print_estimates(settings.training, {task, model.task}, *weights.state, *weights.gradients,
                  communicator, console);
  const std::size_t planned = plan_job_memory(arguments, settings.training, {task, model.task},
                                              machine, *weights.gradients, world, console);
  const Prepared job{request, settings, task,    model,  weights, settings.output.lock,
                     machine, process,  planned, started};
  Outcome outcome = Outcome::kDone;
  if (world.channel) {
    weights.gradients.reset();  // used by the estimates; each view has its own
    outcome = compute_in_views(job, world);
  } else {
    const std::unique_ptr<RunReports> reports = make_reports(job, world);
    outcome = compute(job, world, *weights.gradients, *reports, nullptr, nullptr);
  }
  if (outcome == Outcome::kDone && directory) directory->finish();
  return outcome;
}

}  // namespace tandem::job
