#include "tandem/job/run_reports.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cmath>
#include <ctime>
#include <filesystem>

#include "tandem/core/enum_name.h"
#include "tandem/core/file.h"
#include "tandem/core/python_json.h"
#include "tandem/job/start_report.h"
#include "tandem/report/figure.h"
#include "tandem/report/model_card.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// As transformers names it: runs/Nov21_14-08-00_host.
std::string default_run_folder() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  gethostname(host.data(), HOST_NAME_MAX);
  std::tm now{};
  const std::time_t seconds = std::time(nullptr);
  localtime_r(&seconds, &now);
  return fmt::format("runs/{:%b%d_%H-%M-%S}_{}", now, host.data());
}

fs::path tensorboard_directory(const trainer::TrainingArguments& training,
                               const Environment& environment) {
  if (training.logging_dir) return *training.logging_dir;
  if (const auto directory = environment.get("TENSORBOARD_LOGGING_DIR")) return *directory;
  return fs::path(training.output_dir) / default_run_folder();
}

ordered_json without_suffix(const ordered_json& metrics, std::string_view suffix) {
  ordered_json plain = ordered_json::object();
  for (const auto& [key, value] : metrics.items())
    plain[key.ends_with(suffix) ? key.substr(0, key.size() - suffix.size()) : key] = value;
  return plain;
}

// The evaluations during training, which log `metric`, each with the training loss logged last.
std::vector<ordered_json> evaluations(const trainer::TrainerState& state,
                                      const std::string& metric) {
  std::vector<ordered_json> found;
  ordered_json loss;
  for (const ordered_json& entry : state.log_history) {
    if (entry.contains("loss")) loss = entry["loss"];
    if (!entry.contains(metric)) continue;
    found.push_back(entry);
    if (!loss.is_null()) found.back()["loss"] = loss;
  }
  return found;
}

// As transformers' model card names the optimizer.
std::string optimizer_text(const trainer::TrainingArguments& training) {
  const std::string name(enum_name(training.optim));
  const std::string more =
      training.optim_args.empty() ? "No additional optimizer arguments" : training.optim_args;
  if (name.find("adam") == std::string::npos)
    return fmt::format("Use {} and the args are:\n{}", name, more);
  return fmt::format("Use {} with betas=({},{}) and epsilon={} and optimizer_args={}", name,
                     python_repr(training.adam_beta1), python_repr(training.adam_beta2),
                     python_repr(training.adam_epsilon), more);
}

// The names and the order of transformers' model card.
std::vector<std::pair<std::string, std::string>> hyperparameters(
    const trainer::TrainingArguments& training, int world_size) {
  const int train_batch = training.per_device_train_batch_size;
  const int eval_batch = training.per_device_eval_batch_size;
  std::vector<std::pair<std::string, std::string>> list = {
      {"learning_rate", python_repr(training.learning_rate)},
      {"train_batch_size", std::to_string(train_batch)},
      {"eval_batch_size", std::to_string(eval_batch)},
      {"seed", std::to_string(training.seed)}};
  const auto add_if = [&](bool wanted, const char* name, const std::string& value) {
    if (wanted) list.emplace_back(name, value);
  };
  const int accumulation = training.gradient_accumulation_steps;
  const std::int64_t total = std::int64_t{train_batch} * world_size * accumulation;
  add_if(world_size > 1, "distributed_type", "multi-CPU");
  add_if(world_size > 1, "num_devices", std::to_string(world_size));
  add_if(accumulation > 1, "gradient_accumulation_steps", std::to_string(accumulation));
  add_if(total != train_batch, "total_train_batch_size", std::to_string(total));
  add_if(world_size > 1, "total_eval_batch_size",
         std::to_string(std::int64_t{eval_batch} * world_size));
  list.emplace_back("optimizer", optimizer_text(training));
  list.emplace_back("lr_scheduler_type", enum_name(training.lr_scheduler_type));
  add_if(training.warmup_ratio != 0, "lr_scheduler_warmup_ratio",
         python_repr(training.warmup_ratio));
  add_if(training.warmup_steps != 0, "lr_scheduler_warmup_steps",
         std::to_string(training.warmup_steps));
  if (training.max_steps > 0) {
    list.emplace_back("training_steps", std::to_string(training.max_steps));
  } else {
    list.emplace_back("num_epochs", python_repr(training.num_train_epochs));
  }
  return list;
}

std::string folder_name(const fs::path& folder) {
  return (folder.has_filename() ? folder : folder.parent_path()).filename().native();
}

// The leading metrics of every set of the evaluations.
tasks::LeadingMetrics leading_metrics(const tasks::JobTask& task) {
  tasks::LeadingMetrics leading = task.leading_metrics();
  std::vector<tasks::LeadingMetric> of_sets;
  for (const std::string& suffix : task.set_suffixes(tasks::Split::kEval)) {
    for (tasks::LeadingMetric metric : leading.metrics) {
      metric.key += suffix;
      if (suffix.starts_with('_')) metric.name += fmt::format(" ({})", suffix.substr(1));
      of_sets.push_back(std::move(metric));
    }
  }
  leading.metrics = std::move(of_sets);
  return leading;
}

// The report's text on the data: data used only for calibration is not training data.
tasks::Stages stages_that_count(const Arguments& arguments) {
  return {arguments.trains(), arguments.training.do_eval, arguments.training.do_predict};
}

}  // namespace

RunReports::RunReports(const TrainingRun& run, comm::Communicator& communicator)
    : run_(run),
      main_process_(communicator.rank() == 0),
      world_size_(communicator.size()),
      machine_(machine_facts(run.machine.context(), run.machine.rank_threads(),
                             run.machine.peak_flops(), communicator, run.training.bf16)) {
  Console& console = run.observers.console;
  observers_.add(console);
  observers_.add(run.observers.watcher);
  if (!main_process_) return;
  observers_.add(run.observers.main_watcher);
  observers_.add(speed_);
  const trainer::TrainingArguments& training = run.request.arguments.training;
  if (training.report_to.empty()) return;
  const fs::path directory = tensorboard_directory(training, run.environment);
  console.fact("TensorBoard", fmt::format("events in {}", directory.native()));
  tensorboard_ = std::make_unique<report::TensorBoardObserver>(report::TensorBoardOptions{
      .directory = directory,
      .arguments_json = run.request.training_args_json(),
      .model_config_json = run.task.model_config().to_json(run.task.architecture()),
      .warn = [&console](const std::string& text) { console.warning(text); }});
  observers_.add(*tensorboard_);
}

void RunReports::add_results(std::string stage, const ordered_json& metrics) {
  results_.emplace_back(std::move(stage), metrics);
}

void RunReports::write(const trainer::TrainerState& state,
                       std::vector<trainer::StepPoint> steps) const {
  if (!main_process_) return;
  const trainer::TrainingArguments& training = run_.request.arguments.training;
  const fs::path output_dir = training.output_dir;
  write_file(output_dir / "README.md", model_card(state));
  const report::RunRecord run{.title = training.run_name.value_or(folder_name(output_dir)),
                              .headline = headline(),
                              .log_history = state.log_history,
                              .steps = std::move(steps),
                              .tokens_per_second = speed_.points(),
                              .settings = ordered_json(run_.request.values),
                              .machine = machine_,
                              .results = results_,
                              .scores = leading_metrics(run_.task),
                              .analysis = run_.task.analysis()};
  write_file(output_dir / "report.html", report::html_report(run));
  write_file(output_dir / "report.json", report::to_json(run));
}

std::vector<report::Fact> RunReports::headline() const {
  const Arguments& arguments = run_.request.arguments;
  const std::time_t started = std::chrono::system_clock::to_time_t(run_.started);
  std::tm date{};
  localtime_r(&started, &date);
  const std::chrono::duration<double> duration = std::chrono::system_clock::now() - run_.started;
  std::string machine = world_size_ == 1 ? "1 rank" : fmt::format("{} ranks", world_size_);
  for (const auto& [name, value] : machine_) {
    if (name == "CPU") machine = fmt::format("{}; {}", value, machine);
  }
  return {{"Task", run_.task.title()},
          {"Model",
           arguments.model.is_new_model() ? "a new model" : arguments.model.model_name_or_path},
          {"Data", run_.task.data_name(stages_that_count(arguments)).text},
          {"Date", fmt::format("{:%Y-%m-%d %H:%M %Z}", date)},
          {"Duration", report::duration_text(duration.count())},
          {"Machine", machine},
          {"Command", run_.request.command}};
}

std::string RunReports::model_card(const trainer::TrainerState& state) const {
  const Arguments& arguments = run_.request.arguments;
  const tasks::DataName data = run_.task.data_name(stages_that_count(arguments));
  const tasks::CardTask task = run_.task.card_task();
  const fs::path output_dir = arguments.training.output_dir;
  report::ModelCard card{
      .name = folder_name(output_dir),
      .base_model = arguments.model.model_name_or_path,
      .task_name = task.name,
      .task_type = task.type,
      .listed_metrics = task.metrics,
      .dataset_name = data.dataset,
      .dataset_config = data.config,
      .dataset_title = data.title,
      .language = data.language,
      .license = std::nullopt,
      .eval_metrics = ordered_json::object(),
      .hyperparameters = hyperparameters(arguments.training, world_size_),
      .trained = arguments.trains(),
      .evaluations = evaluations(state, fmt::format("eval_{}", run_.task.main_metric())),
      .frameworks = {{"tandem", TANDEM_VERSION}}};
  if (arguments.quantization.apply_quantization) {
    card.relation = arguments.trains() ? "a fine-tuned version in int8"
                                       : "a version in int8, without further training,";
  }
  for (const auto& [stage, metrics] : results_) {
    if (stage == "eval") card.eval_metrics = metrics;
  }
  // The last set's metrics, whose names in the log have no suffix.
  card.eval_metrics =
      without_suffix(card.eval_metrics, run_.task.set_suffixes(tasks::Split::kEval).back());
  return report::model_card_markdown(card);
}

}  // namespace tandem::job
