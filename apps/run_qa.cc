// `tandem run_qa`: what people type `python3 run_qa.py` for. This file wires the parts together and
// tells the story of a job in order; the parts themselves are libraries.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/agreed_inputs.h"
#include "apps/arguments/enum_names.h"
#include "apps/arguments/run_qa_arguments.h"
#include "apps/command/commands.h"
#include "apps/command/communication_log.h"
#include "apps/command/download_progress.h"
#include "apps/command/tuned_tiles.h"
#include "apps/console.h"
#include "apps/job_output.h"
#include "apps/memory_plan.h"
#include "apps/quantize.h"
#include "apps/question_data.h"
#include "apps/rank_threads.h"
#include "apps/run_reports.h"
#include "apps/start_report.h"
#include "apps/stop_signals.h"
#include "tandem/comm/algorithms/tuning.h"
#include "tandem/comm/api/communicator.h"
#include "tandem/comm/api/texts.h"
#include "tandem/comm/failure/flight_recorder.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/hub/model_files.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/quant/load_model.h"
#include "tandem/rendezvous/identity.h"
#include "tandem/rendezvous/pmi.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/text/tokenizer.h"
#include "tandem/trainer/trainer.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using question_answering::QuestionAnsweringTask;
using tasks::Split;

constexpr int kExitFailed = 1;
constexpr std::size_t kMistakesShown = 300;  // wrong answers in report.html, with their texts

void handle_record_request(int) { comm::request_flight_records(); }

// Everything about this process's place among the ranks.
struct World {
  rendezvous::Identity identity;
  std::unique_ptr<comm::Communicator> communicator;
  bool is_main() const { return communicator->rank() == 0; }
};

World join_world(const Environment& environment, const trainer::TrainingArguments& training) {
  const CommunicationLog level = communication_log(environment);
  World world{.identity = rendezvous::identify(environment), .communicator = nullptr};
  comm::Options options;
  options.timeout = std::chrono::seconds(training.ddp_timeout);
  options.node_id = environment.get("TANDEM_NODE_ID").value_or("");
  options.transport = comm::choose_transport(enum_name(training.ddp_backend), environment,
                                             world.identity.distributed());
  options.selection = comm::Selection::from_environment(environment);
  options.worker =
      comm::WorkerOptions::from_environment(environment, openmp_threads(environment).value_or(0));
  options.tuning = comm::tuning_from_environment(environment);
  options.flight_record_folder =
      environment.get("TANDEM_FLIGHT_RECORD").value_or(training.output_dir);
  comm::read_limits_of_silence(environment, options);
  options.log = log_printer(level);
  // The training thread may be deep in a matrix product when a peer dies: then this is who ends the
  // process.
  options.on_failure = [environment](const std::string& message) {
    fmt::print(stderr, "tandem: error: {}\n", message);
    std::fflush(nullptr);
    const int code = CommError("").exit_code();
    rendezvous::end_job(environment, code);
    _exit(code);
  };
  world.communicator = comm::Communicator::create(world.identity, std::move(options));
  if (level == CommunicationLog::kInfo) {
    fmt::print(stderr, "tandem: {}; {}\n", rendezvous::describe(world.identity),
               world.communicator->describe());
  }
  if (level != CommunicationLog::kError && world.is_main()) {
    for (const std::string& note : world.communicator->options().selection.notes)
      fmt::print(stderr, "tandem: {}\n", note);
  }
  return world;
}

// Who writes what: the library's lines of the first rank of every node (or only of rank 0) follow
// --log_level, the others' --log_level_replica. What is true of the whole job rank 0 says alone:
// the start, notes, warnings, progress, log dicts and tables.
ConsoleOptions console_options(const trainer::TrainingArguments& training, const World& world) {
  using trainer::LogLevel;
  const comm::Communicator& communicator = *world.communicator;
  const auto is_silent = [](LogLevel level) {
    return level == LogLevel::kWarning || level == LogLevel::kError || level == LogLevel::kCritical;
  };
  const bool leads =
      world.is_main() || (training.log_on_each_node && communicator.local_rank() == 0);
  const LogLevel level = leads ? training.log_level : training.log_level_replica;
  return {.main_process = world.is_main(),
          .details = level == LogLevel::kDebug || level == LogLevel::kDetail,
          .library_lines = !is_silent(level) && (leads || level != LogLevel::kPassive),
          .progress_bars = !training.disable_tqdm.value_or(false),
          .world_size = communicator.size()};
}

nn::Precision precision_of(const trainer::TrainingArguments& training) {
  return training.bf16 ? nn::Precision::kBfloat16 : nn::Precision::kFloat32;
}

// All ranks compute with the kernels that the weakest CPU among them has, because different
// instructions round differently.
kernels::KernelSet agree_on_kernels(comm::Communicator& communicator, nn::Precision precision,
                                    const Environment& environment) {
  kernels::CpuFeatures features = kernels::CpuFeatures::detect();
  std::array<std::int64_t, 5> flags{features.avx2, features.avx512, features.avx512_bf16,
                                    features.avx512_vnni, features.amx_bf16};
  communicator.all_reduce(std::span<std::int64_t>(flags), comm::ReduceOp::kMin);
  features.avx2 = flags[0] != 0;
  features.avx512 = flags[1] != 0;
  features.avx512_bf16 = flags[2] != 0;
  features.avx512_vnni = flags[3] != 0;
  features.amx_bf16 = flags[4] != 0;
  auto kernels =
      kernels::select_kernels(features, environment.get("TANDEM_KERNELS").value_or(""), precision);
  agree(communicator, "choice of kernels (TANDEM_KERNELS)", kernels.signature());
  return kernels;
}

// ddp_bucket_cap_mb in f32 elements.
std::size_t bucket_elements(const trainer::TrainingArguments& training) {
  if (!training.ddp_bucket_cap_mb) return dist::GradientEngineOptions{}.bucket_elements;
  return static_cast<std::size_t>(*training.ddp_bucket_cap_mb) * (1 << 20) / sizeof(float);
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

class Job {
 public:
  Job(const ParsedRunQa& parsed, const Invocation& invocation, World& world, StopSignals& signals,
      Console& console)
      : parsed_(parsed),
        arguments_(parsed.arguments),
        words_(invocation.words),
        environment_(invocation.environment),
        world_(world),
        signals_(signals),
        console_(console) {}

  int run();

 private:
  int train(trainer::Trainer& trainer, QuestionAnsweringTask& task, const dist::ModelState& model,
            bool saves, const std::optional<fs::path>& resume, RunReports& reports);
  void evaluate(trainer::Trainer& trainer, QuestionAnsweringTask& task, Split split,
                RunReports& reports);
  void report_metrics(const QuestionAnsweringTask& task, Split split, ordered_json metrics,
                      RunReports& reports);
  bool saves_model(const dist::GradientEngine& gradients) const {
    return world_.is_main() || (arguments_.training.save_on_each_node && gradients.node_leader());
  }

  const ParsedRunQa& parsed_;
  const RunQaArguments& arguments_;
  const std::vector<std::string>& words_;
  const Environment& environment_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  World& world_;
  StopSignals& signals_;
  Console& console_;
};

int Job::run() {
  trainer::TrainingArguments training = arguments_.training;
  training.do_train = arguments_.trains();
  comm::Communicator& communicator = *world_.communicator;
  print_start(parsed_, world_.identity, communicator, console_);
  if (!training.do_train && !training.do_eval && !training.do_predict) {
    console_.warning("nothing is to do: pass --do_train, --do_eval or --do_predict");
    return 0;
  }
  warn_of_no_training(arguments_, world_.is_main(), console_);
  agree(communicator, "command line", describe(arguments_));
  const PreparedOutput output = prepare_output(training, communicator, console_);
  const std::optional<fs::path>& resume = output.resume;
  split_batch_sizes(training.logical_shards.value_or(communicator.size()), training);
  if (resume && training.do_train) {
    adopt_checkpoint_settings(*resume, communicator.size(), training, console_);
  }

  const RankThreads rank_threads = threads_for_rank(environment_, communicator);
  ThreadPool threads(rank_threads.count);
  kernels::KernelSet kernels = agree_on_kernels(communicator, precision_of(training), environment_);
  const std::string tiles = load_tuned_tiles(environment_, kernels);
  kernels::Scratch scratch(threads.num_threads());
  const kernels::Context context{threads, kernels, scratch};
  communicator.barrier();  // all ranks measure at once, as they will compute at once
  const double peak_flops = kernels::measure_peak_flops(
      context, training.bf16 ? kernels::PeakType::kBf16 : kernels::PeakType::kF32);
  console_.set_peak_flops(peak_flops);
  print_machine(context, rank_threads, peak_flops, communicator, console_);
  if (!tiles.empty()) console_.detail("kernels", tiles);
  if (training.bf16) {
    print_bf16_rate(kernels::measure_peak_flops(context, kernels::PeakType::kF32), peak_flops,
                    console_);
  }

  DownloadProgress downloads(!training.disable_tqdm.value_or(false), world_.is_main());
  const hub::DatasetFiles files = resolve_questions(arguments_, environment_, downloads);
  const hub::ModelLocation location =
      hub::resolve_model(arguments_.model, environment_, &downloads);
  const text::Tokenizer tokenizer = text::Tokenizer::load(location.tokenizer_directory);
  const models::ModelConfig model_config = models::ModelConfig::load(location.config_directory);
  prepare_for_int8(model_config, location.model.directory, arguments_, training, console_);
  QuestionAnsweringTask task(
      model_config, tokenizer,
      {.padding = padding_of(arguments_.data),
       .precision = precision_of(training),
       .gradient_checkpointing = training.gradient_checkpointing,
       .eval_batch_size = static_cast<std::size_t>(training.per_device_eval_batch_size),
       .postprocess = {.version_2_with_negative = arguments_.data.version_2_with_negative,
                       .n_best_size = static_cast<std::size_t>(arguments_.data.n_best_size),
                       .max_answer_length =
                           static_cast<std::size_t>(arguments_.data.max_answer_length),
                       .null_score_diff_threshold = arguments_.data.null_score_diff_threshold},
       .weight_format = training.save_safetensors ? models::WeightFormat::kSafetensors
                                                  : models::WeightFormat::kTorch});
  print_model(location.model.directory, task, console_);
  load_questions(arguments_, files, location.tokenizer_directory, tokenizer, environment_, threads,
                 console_, task);
  const std::string fingerprint = arguments_.training.do_train ? task.train_fingerprint() : "";
  if (communicator.size() > 1)
    agree(communicator, "inputs", describe_inputs(model_config, task, fingerprint));

  const std::unique_ptr<optim::Optimizer> optimizer =
      training.do_train ? trainer::make_optimizer(training, task.layout()) : nullptr;
  dist::ModelState model(&communicator,
                         {.elements = task.layout().size(),
                          .bf16_elements = training.bf16 ? task.layout().bf16_size() : 0,
                          .optimizer_state_elements = optimizer ? optimizer->state_elements() : 0});
  dist::GradientEngine gradients(
      &communicator, context, model,
      {.logical_shards = training.logical_shards.value_or(communicator.size()),
       .bf16_gradients = training.gradient_dtype == trainer::GradientDtype::kBfloat16,
       .bucket_elements = bucket_elements(training)});
  const quant::LoadedModel loaded =
      quant::load_model(location.model.directory, task.model().config(), task.layout(), context,
                        gradients.node_leader() ? model.weights() : std::span<float>(),
                        static_cast<std::uint64_t>(training.seed));
  if (gradients.node_leader())
    print_load_report(loaded.report, arguments_.model.model_name_or_path, console_);
  gradients.broadcast_weights();
  print_estimates(training, task, model, gradients, communicator, console_);
  const std::size_t of_quantization = quantization_bytes(arguments_, task);
  MemoryPlan plan = plan_memory(training, static_cast<std::size_t>(arguments_.data.n_best_size),
                                context, communicator, gradients, task);
  plan.quantization = of_quantization;
  const std::size_t planned_memory = print_memory_plan(plan, communicator, console_);
  check_memory_limits(plan, communicator, console_);

  const models::ModelConfig& config = task.model().config();
  RunReports reports(
      {.arguments = arguments_,
       .environment = environment_,
       .main_process = world_.is_main(),
       .world_size = communicator.size(),
       .model_config_json = config.to_json(task.model().architecture()),
       .machine = machine_facts(context, rank_threads, peak_flops, communicator, training.bf16),
       .command = report_command(words_),
       .started = started_,
       .console = console_});
  trainer::Trainer trainer({.arguments = training,
                            .task = task,
                            .kernels = context,
                            .communicator = communicator,
                            .model = model,
                            .gradients = gradients,
                            .optimizer = optimizer.get(),
                            .observer = reports.observer(),
                            .stop_requested = signals_.requested(),
                            .arguments_json = training_args_json(arguments_),
                            .data_fingerprint = fingerprint});
  if (loaded.int8) trainer.evaluate_int8(&*loaded.int8);
  if (training.do_train) {
    if (const int code = train(trainer, task, model, saves_model(gradients), resume, reports);
        code != 0)
      return code;
  }
  std::optional<Quantized> quantized;
  if (arguments_.quantization.apply_quantization) {
    quantized = quantize({arguments_.quantization, training, task, tokenizer, context, communicator,
                          model.weights(), saves_model(gradients), reports.observer(), console_});
    if (!quantized) return kExitFailed;
    report_metrics(task, Split::kEval, quantized->metrics, reports);
    trainer.evaluate_int8(&quantized->linears);
  } else if (training.do_eval) {
    evaluate(trainer, task, Split::kEval, reports);
  }
  if (training.do_predict) evaluate(trainer, task, Split::kPredict, reports);
  print_memory_used(planned_memory, communicator, console_);
  reports.write(trainer.state(), task.mistakes(kMistakesShown));
  return 0;
}

int Job::train(trainer::Trainer& trainer, QuestionAnsweringTask& task,
               const dist::ModelState& model, bool saves, const std::optional<fs::path>& resume,
               RunReports& reports) {
  const StopSignals::Training training(signals_);  // until the model is saved
  const fs::path output_dir = arguments_.training.output_dir;
  trainer::TrainResult result = trainer.train(resume);
  if (result.preempted) {
    console_.warning(
        fmt::format("stopped by {} after step {}; run the same command again to go on from "
                    "{}/checkpoint-{}",
                    StopSignals::name(), trainer.state().global_step, output_dir.native(),
                    trainer.state().global_step));
    return StopSignals::exit_code();
  }
  if (!saves) return 0;
  console_.saving(output_dir);
  task.save_pretrained(output_dir, model.weights());
  write_file(output_dir / "training_args.json", training_args_json(arguments_));
  if (!world_.is_main()) return 0;
  console_.detail(
      "files",
      "training_args.json takes the place of training_args.bin, which only Python can write");
  print_step_times(result.step_times, console_);
  result.metrics["train_samples"] = task.num_train_features();
  console_.metrics_table("train", result.metrics);
  save_metrics(output_dir, "train", result.metrics);
  reports.add_results("train", result.metrics);
  write_file(output_dir / "trainer_state.json", trainer.state().to_json());
  return 0;
}

void Job::evaluate(trainer::Trainer& trainer, QuestionAnsweringTask& task, Split split,
                   RunReports& reports) {
  const bool eval = split == Split::kEval;
  console_.script_line("INFO", eval ? "*** Evaluate ***" : "*** Predict ***");
  ordered_json metrics = trainer.evaluate(split);
  // As in run_qa.py predictions are not logged, and the log is what adds the epoch.
  if (eval && arguments_.training.do_train) metrics["epoch"] = trainer.state().epoch;
  if (eval) trainer.add_token_count(metrics);
  if (eval) reports.observer().log(metrics);
  report_metrics(task, split, std::move(metrics), reports);
}

void Job::report_metrics(const QuestionAnsweringTask& task, Split split, ordered_json metrics,
                         RunReports& reports) {
  const bool eval = split == Split::kEval;
  metrics[eval ? "eval_samples" : "predict_samples"] = task.num_features(split);
  if (!world_.is_main()) return;
  console_.metrics_table(eval ? "eval" : "predict", metrics);
  save_metrics(arguments_.training.output_dir, eval ? "eval" : "predict", metrics);
  reports.add_results(eval ? "eval" : "predict", metrics);
}

}  // namespace

int run_qa(const Invocation& invocation) {
  const ParsedRunQa parsed =
      parse_run_qa(invocation.words, fs::current_path(), invocation.environment);
  StopSignals signals;
  std::signal(SIGUSR1, handle_record_request);
  std::signal(SIGPIPE, SIG_IGN);  // `… | head` ends the reader, not the training
  World world = join_world(invocation.environment, parsed.arguments.training);
  Console console(console_options(parsed.arguments.training, world));
  try {
    const int code = Job(parsed, invocation, world, signals, console).run();
    signals.let_end();
    world.communicator->close();
    return code;
  } catch (const CommError&) {
    signals.let_end();
    throw;
  } catch (const Interrupted&) {
    signals.let_end();
    fmt::print(stderr, "tandem: stopped by {}\n", StopSignals::name());
    world.communicator->life().abort(fmt::format("it was stopped by {}", StopSignals::name()));
    return StopSignals::exit_code();
  } catch (const std::exception& error) {
    signals.let_end();
    world.communicator->life().abort(error.what());  // the other ranks end too, and say why
    throw;
  }
}

}  // namespace tandem::apps
