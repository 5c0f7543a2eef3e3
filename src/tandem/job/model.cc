#include "tandem/job/model.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "tandem/comm/texts.h"
#include "tandem/core/file.h"
#include "tandem/dist/checksum.h"
#include "tandem/job/adapters.h"
#include "tandem/job/agreed_inputs.h"
#include "tandem/job/quantize.h"
#include "tandem/job/shared_error.h"
#include "tandem/job/start_report.h"
#include "tandem/job/training_run.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/encoder/new_config.h"
#include "tandem/models/pretrained/from_scratch.h"
#include "tandem/optim/no_optimizer.h"
#include "tandem/trainer/optimization.h"
#include "tandem/trainer/train_step.h"

namespace tandem::job {
namespace {

tasks::TaskSettings task_settings(const trainer::TrainingArguments& training,
                                  const std::filesystem::path& model_directory) {
  return {.precision = precision_of(training),
          .gradient_checkpointing = training.gradient_checkpointing,
          .eval_batch_size = static_cast<std::size_t>(training.per_device_eval_batch_size),
          .weight_format = training.save_safetensors ? models::WeightFormat::kSafetensors
                                                     : models::WeightFormat::kTorch,
          .model_directory = model_directory,
          .seed = static_cast<std::uint64_t>(training.seed)};
}

// ddp_bucket_cap_mb in f32 elements.
std::size_t bucket_elements(const trainer::TrainingArguments& training) {
  if (!training.ddp_bucket_cap_mb) return dist::GradientEngineOptions{}.bucket_elements;
  return static_cast<std::size_t>(*training.ddp_bucket_cap_mb) * (1 << 20) / sizeof(float);
}

models::LoadOptions load_options(const TrainingRun& run) {
  return {.seed = static_cast<std::uint64_t>(run.training.seed),
          .ignore_mismatched_sizes = run.request.arguments.model.ignore_mismatched_sizes,
          .grows_vocabulary = run.task.grows_vocabulary(),
          .adapter = run.model.adapter};
}

models::ModelConfig read_config(const hub::ModelArguments& arguments,
                                const hub::ModelLocation& location,
                                std::span<const models::Family* const> families) {
  if (location.config_directory.empty()) {
    return models::ModelConfig::parse(
        models::new_config_json(arguments.model_type.value_or(""),
                                arguments.config_overrides.value_or(""), families),
        "--model_type and --config_overrides", families);
  }
  const std::filesystem::path file = location.config_directory / "config.json";
  return models::ModelConfig::parse(read_file(file), file.native(), families);
}

std::unique_ptr<optim::Optimizer> optimizer_for(const trainer::TrainingArguments& training,
                                                const nn::ParameterLayout& layout) {
  if (!training.do_train) return std::make_unique<optim::NoOptimizer>();
  return trainer::make_optimizer(training, layout);
}

// Without `fills`: another rank of the node fills the state.
quant::LoadedModel begin_weights(const TrainingRun& run, bool fills) {
  models::LoadOptions options = load_options(run);
  const std::span<float> weights = fills ? run.weights.state->weights() : std::span<float>();
  if (fills) options.bf16_copy = run.weights.state->bf16_weights();
  const nn::ParameterLayout& layout = run.model.task.layout();
  const models::ModelConfig& config = run.task.model_config();
  if (!run.model.files.directory().empty())
    return run.model.files.load(config, layout, run.machine.context(), weights, options);
  if (!weights.empty()) models::initialize_from_scratch(config, layout, weights, options.seed);
  return {};
}

// Reads the frozen weights of a model that is loaded, or only those.
void fill_frozen(const TrainingRun& run) {
  models::LoadOptions options = load_options(run);
  options.frozen_only = true;
  options.bf16_copy = run.weights.state->bf16_weights();
  run.model.files.load(run.task.model_config(), run.model.task.layout(), run.machine.context(),
                       run.weights.state->weights(), options);
  run.weights.state->set_frozen_filled();
}

void report_loading(const TrainingRun& run, const models::LoadReport& report) {
  print_load_report(report, run.request.arguments.model.model_name_or_path, run.training.do_train,
                    run.observers.console);
}

// The frozen weights come from each node's own files.
void agree_on_frozen(const Machine& machine, comm::Communicator& communicator,
                     const dist::ModelState& state) {
  const std::span<const float> weights = state.frozen_weights();
  const std::span<const bfloat16> operands = state.frozen_operands();
  if ((weights.empty() && operands.empty()) || communicator.nodes().size() == 1) return;
  ThreadPool& threads = machine.context().threads;
  std::string checksums = dist::checksum_line("weights", threads, weights);
  if (!operands.empty()) checksums += dist::checksum_line("bf16 weights", threads, operands);
  agree(communicator, "frozen base model", checksums);
}

// No file may be written for a set that the flags or the files leave empty.
void require_samples(const tasks::Stages& stages, const tasks::Task& task) {
  const auto check = [&](bool wanted, tasks::Split split, std::string_view samples,
                         std::string_view limit, std::string_view file, std::string_view stage) {
    if (!wanted || task.num_features(split) > 0) return;
    raise<ConfigError>(
        "no {} samples: --{} is 0 or --{} has no examples; pass a larger --{}, or leave --{} out",
        samples, limit, file, limit, stage);
  };
  check(stages.eval, tasks::Split::kEval, "evaluation", "max_eval_samples", "validation_file",
        "do_eval");
  check(stages.predict, tasks::Split::kPredict, "prediction", "max_predict_samples", "test_file",
        "do_predict");
}

}  // namespace

dist::GradientEngineOptions engine_options(const trainer::TrainingArguments& training,
                                           int world_size) {
  return {.logical_shards = training.logical_shards.value_or(world_size),
          .bf16_gradients = training.gradient_dtype == trainer::GradientDtype::kBfloat16,
          .bucket_elements = bucket_elements(training)};
}

Model open_model(const Request& request, const trainer::TrainingArguments& training,
                 const std::optional<std::filesystem::path>& resume, tasks::JobTask& task,
                 const Environment& environment, const Observers& observers, Machine& machine,
                 comm::Communicator& communicator) {
  const Arguments& arguments = request.arguments;
  Console& console = observers.console;
  const auto read = [&]() -> Model {
    const tasks::Stages stages = arguments.stages();
    const hub::DatasetFiles files =
        task.find_data(stages, arguments.model, environment, observers.downloads);
    const hub::ModelLocation location = hub::resolve_model(
        arguments.model, environment, observers.downloads, task.reads_sentence_files());
    const models::ModelConfig config = with_adapters(
        read_config(arguments.model, location, request.families), arguments, location, console);
    auto tokenizer = std::make_unique<text::Tokenizer>(text::Tokenizer::load(
        location.tokenizer_directory, task.tokenizer_options(config, location.model.directory)));
    for (const auto* notes : {&tokenizer->notes(), &config.notes})
      for (const std::string& note : *notes) console.warning(note);
    quant::ModelFiles model_files(location.model.directory, config);
    check_use_of_int8(model_files, arguments, training);
    task.read_examples(stages, files, console);
    tasks::Task& made =
        task.make_task(config, *tokenizer, task_settings(training, location.model.directory));
    if (resume && training.do_train) require_same_adapter(config, made.layout(), *resume);
    print_model(location.model.directory, task, made.layout(), console);
    task.load_data({.stages = stages,
                    .files = files,
                    .tokenizer_directory = location.tokenizer_directory,
                    .environment = environment,
                    .threads = machine.threads(),
                    .log = console});
    require_samples(stages, made);
    return {std::move(model_files), location.adapter, std::move(tokenizer), made,
            stages.train ? task.train_fingerprint() : ""};
  };
  std::optional<Model> model;
  run_with_shared_errors(communicator, [&] { model.emplace(read()); });
  if (communicator.size() > 1) agree(communicator, "inputs", describe_inputs(task, *model));
  return std::move(*model);
}

Weights make_weights(const trainer::TrainingArguments& training, const nn::ParameterLayout& layout,
                     const Machine& machine, const World& world) {
  Weights weights;
  weights.optimizer = optimizer_for(training, layout);
  const dist::GradientEngineOptions engine = engine_options(training, world.communicator->size());
  const dist::ModelStateOptions state =
      trainer::state_options(layout, training.bf16 ? layout.bf16_size() : 0, *weights.optimizer,
                             engine.logical_shards, machine.context());
  if (world.elastic) {
    const elastic::WorkerInfo& info = world.elastic->info();
    weights.state = std::make_unique<dist::ModelState>(
        dist::KeptMemory{info.memory, info.worker, info.workers}, state);
  } else {
    weights.state = std::make_unique<dist::ModelState>(*world.communicator, state);
  }
  return weights;
}

void load_weights(const TrainingRun& run, const World& world, dist::GradientEngine& gradients) {
  dist::ModelState& state = *run.weights.state;
  const bool leads = gradients.node_leader() && !world.elastic;
  run.weights.loaded = begin_weights(run, leads);
  if (world.elastic) {
    // The first worker of a node, before others wait for it; otherwise fill_weights() does.
    const bool frozen = run.model.task.layout().has_frozen_base();
    if (frozen && world.elastic->info().worker == 0 && !state.frozen_filled()) fill_frozen(run);
    return;
  }
  if (leads) {
    state.set_frozen_filled();
    report_loading(run, run.weights.loaded.report);
  }
  gradients.broadcast_weights();
  agree_on_frozen(run.machine, *world.communicator, state);
}

void fill_weights(const TrainingRun& run, comm::Communicator& communicator, bool node_leader) {
  dist::ModelState& state = *run.weights.state;
  if (node_leader && !state.filled()) {
    state.clear_remains();
    report_loading(run, begin_weights(run, /*fills=*/true).report);
    state.set_frozen_filled();
    state.set_filled();
  } else if (node_leader && !state.frozen_filled()) {
    fill_frozen(run);
  }
  communicator.barrier();
  agree_on_frozen(run.machine, communicator, state);
  // Weights of a later step came from one host.
  if (state.step() > 0 || communicator.nodes().size() == 1) return;
  agree(communicator, "weights to begin with",
        dist::checksum_line("weights", run.machine.context().threads, state.trained_weights()));
}

}  // namespace tandem::job
