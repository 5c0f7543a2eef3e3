// One training run in this process, recorded step by step, for comparison with the Hugging Face
// Trainer.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "support/test_support.h"
#include "support/trajectory.h"
#include "tandem/comm/communicator.h"
#include "tandem/core/json.h"
#include "tandem/data/read_questions.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/kernels/context.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/trainer/optimization.h"
#include "tandem/trainer/trainer.h"

namespace tandem::testing {

struct TrainingRunOptions {
  std::filesystem::path model;
  std::filesystem::path questions;
  question_answering::FeatureOptions features;
  trainer::TrainingArguments arguments;  // output_dir is replaced
  int logical_shards = 1;
  bool bf16 = false;
  bool dropout = true;  // false: all probabilities of the model's config become 0
  // The run is stopped after so many; the schedule is that of the whole run.
  std::int64_t steps = 0;
};

// Records the trainer's reports, and asks it to stop.
class StepRecorder final : public trainer::Observer {
 public:
  StepRecorder(std::int64_t steps, std::atomic<bool>& stop) : steps_(steps), stop_(stop) {}
  void step_end(const trainer::StepProgress& progress) override {
    losses.push_back(progress.loss);
    learning_rates.push_back(progress.learning_rate);
    if (on_step) on_step(progress.step);
    if (progress.step >= steps_) stop_ = true;
  }
  void log(const nlohmann::ordered_json& entry) override {
    if (entry.contains("grad_norm")) grad_norms.push_back(entry["grad_norm"].get<double>());
  }
  std::vector<double> losses, learning_rates, grad_norms;
  std::function<void(std::int64_t step)> on_step;

 private:
  std::int64_t steps_;
  std::atomic<bool>& stop_;
};

// (step, layout, weights): before the first step as step 0, and after every step.
using OnStep =
    std::function<void(std::int64_t, const nn::ParameterLayout&, std::span<const float>)>;

// Trains `task`, which has its training features, from the weights in `model`; what they lack is
// drawn from the seed.
struct TaskRun {
  std::filesystem::path model;
  const models::ModelConfig& config;
  const trainer::TrainingArguments& arguments;
  int logical_shards = 1;
  bool bf16 = false;
  std::int64_t steps = 0;  // after which it is stopped
};

inline TrainingRecord record_task(const TaskRun& run, tasks::Task& task,
                                  const kernels::Context& context, const OnStep& on_step) {
  const TemporaryFolder output;
  trainer::TrainingArguments arguments = run.arguments;
  arguments.output_dir = output.path().native();
  arguments.logging_steps = 1;
  arguments.save_strategy = trainer::SaveStrategy::kNo;
  arguments.save_only_model = true;
  const auto communicator = comm::Communicator::create(rendezvous::Identity{}, {});
  const std::unique_ptr<optim::Optimizer> optimizer =
      trainer::make_optimizer(arguments, task.layout());
  dist::ModelState model(trainer::state_options(task.layout(),
                                                run.bf16 ? task.layout().bf16_size() : 0,
                                                *optimizer, run.logical_shards, context));
  dist::GradientEngine gradients(*communicator, context, model,
                                 {.logical_shards = run.logical_shards});
  models::load_pretrained(run.model, run.config, task.layout(), model.weights(),
                          {.seed = static_cast<std::uint64_t>(arguments.seed)});
  task.plan_training(static_cast<std::size_t>(arguments.per_device_train_batch_size));

  std::atomic<bool> stop{false};
  StepRecorder recorder(run.steps, stop);
  trainer::ElasticCallbacks callbacks;
  recorder.on_step = [&](std::int64_t step) { on_step(step, task.layout(), model.weights()); };
  trainer::Trainer trainer({.arguments = arguments,
                            .task = task,
                            .kernels = context,
                            .communicator = *communicator,
                            .model = model,
                            .gradients = gradients,
                            .optimizer = *optimizer,
                            .observer = recorder,
                            .stop_requested = stop,
                            .arguments_json = "{}",
                            .data_fingerprint = "",
                            .callbacks = callbacks});
  on_step(0, task.layout(), model.weights());
  trainer.train(std::nullopt);
  return {recorder.losses, recorder.learning_rates, recorder.grad_norms};
}

// The same for question answering, with the options' model.
inline TrainingRecord record_training(const TrainingRunOptions& options, const OnStep& on_step) {
  namespace qa = question_answering;
  ThreadPool threads(available_cores());
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch(threads.num_threads());
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model);
  const data::QuestionSet questions = data::read_questions(options.questions);
  models::ModelConfig config = models::ModelConfig::load(options.model);
  if (!options.dropout) {
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = config.qa_dropout = 0;
  }
  qa::QuestionAnsweringTask task(
      config, tokenizer,
      {.padding = options.features.padding,
       .precision = options.bf16 ? nn::Precision::kBfloat16 : nn::Precision::kFloat32});
  task.set_train_features(
      qa::build_features(tokenizer, questions.examples(), options.features, threads));
  return record_task({.model = options.model,
                      .config = task.model().config(),
                      .arguments = options.arguments,
                      .logical_shards = options.logical_shards,
                      .bf16 = options.bf16,
                      .steps = options.steps},
                     task, {threads, kernels, scratch}, on_step);
}

// The parameters that are not where the golden has them after a step, and how far from there: none.
// `golden`: a list of parameters with their name, or an object of them.
inline std::vector<std::string> other_ways(const nlohmann::json& golden,
                                           const nn::ParameterLayout& layout, const Way& all,
                                           const WayError& tolerance,
                                           bool (*skipped)(std::string_view name)) {
  std::vector<std::string> others;
  for (const auto& [key, values] : golden.items()) {
    const std::string name = golden.is_array() ? values.at("name").get<std::string>() : key;
    if (skipped(name)) continue;
    const nn::ParameterSpec* parameter = layout.find(name);
    const std::string other =
        parameter == nullptr
            ? "not there"
            : other_way({.from = all.from.subspan(parameter->offset, parameter->size),
                         .to = all.to.subspan(parameter->offset, parameter->size)},
                        values, tolerance);
    if (!other.empty()) others.push_back(name + ": " + other);
  }
  return others;
}

}  // namespace tandem::testing
