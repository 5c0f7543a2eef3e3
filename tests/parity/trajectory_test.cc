// The first steps of fine-tuning the real MiniLM on real SQuAD, against the Hugging Face Trainer
// (goldens in ../shared/data): losses, gradient norms, learning rates and parameters, for one rank
// and for the two logical shards of two ranks. Dropout is 0, because masks cannot match.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "support/gzip.h"
#include "support/test_support.h"
#include "tandem/data/read_questions.h"
#include "tandem/models/pretrained.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/trainer/trainer.h"

namespace tandem::testing {
namespace {

using nlohmann::json;
namespace qa = question_answering;

// Remembers what the trainer tells, and asks it to stop after so many steps: the schedule is that
// of the whole run.
class Recorder final : public trainer::Observer {
 public:
  Recorder(std::int64_t steps, std::atomic<bool>& stop) : steps_(steps), stop_(stop) {}
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

class Trajectory : public MiniLmTest {
 protected:
  struct Tolerance {
    double loss, norm, parameters;
  };

  static void compare(const std::string& golden_name, int shards, bool bf16,
                      const Tolerance& tolerance) {
    const json golden = json::parse(read_gzip(shared_data() / "golden" / golden_name));
    const auto& steps = golden.at("steps");
    ThreadPool threads(available_cores());
    const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect());
    kernels::Scratch scratch(threads.num_threads());
    const kernels::Context context{threads, kernels, scratch};

    const text::Tokenizer tokenizer = text::Tokenizer::load(minilm_dir());
    const data::QuestionSet questions =
        data::read_questions(shared_data() / "squad" / "squad1-train-head.json");
    models::ModelConfig config = models::ModelConfig::load(minilm_dir());
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
    qa::QuestionAnsweringTask::Options options;
    options.padding = qa::Padding::kMaxSeqLength;
    options.precision = bf16 ? nn::Precision::kBfloat16 : nn::Precision::kFloat32;
    qa::QuestionAnsweringTask task(config, tokenizer, options);
    qa::FeatureOptions feature_options;
    feature_options.padding = options.padding;
    task.set_train_features(
        qa::build_features(tokenizer, questions.examples(), feature_options, threads));

    const TemporaryFolder output;
    trainer::TrainingArguments arguments;
    arguments.output_dir = output.path().native();
    arguments.per_device_train_batch_size = 12 / shards;
    arguments.learning_rate = 3e-5;
    arguments.num_train_epochs = 2;
    arguments.logging_steps = 1;
    arguments.save_strategy = trainer::SaveStrategy::kNo;
    arguments.save_only_model = true;
    const auto communicator = comm::Communicator::create(rendezvous::Identity{}, {});
    dist::DataParallel parallel(
        nullptr, threads,
        {.elements = task.layout().size(), .logical_shards = shards, .bf16_weights = bf16});
    models::load_pretrained(minilm_dir(), task.model().config(), task.layout(), parallel.weights(),
                            42);
    task.plan_training(static_cast<std::size_t>(arguments.per_device_train_batch_size));

    std::atomic<bool> stop{false};
    Recorder recorder(static_cast<std::int64_t>(steps.size()), stop);
    recorder.on_step = [&](std::int64_t step) {
      const auto snapshot = golden.at("params").find(std::to_string(step));
      if (snapshot != golden.at("params").end())
        compare_parameters(*snapshot, task.layout(), parallel.weights(), tolerance.parameters);
    };
    trainer::Trainer trainer({.arguments = arguments,
                              .task = task,
                              .kernels = context,
                              .communicator = *communicator,
                              .parallel = parallel,
                              .observer = recorder,
                              .stop_requested = stop,
                              .arguments_json = "{}",
                              .data_fingerprint = ""});
    EXPECT_TRUE(trainer.train(std::nullopt).preempted);

    ASSERT_EQ(recorder.losses.size(), steps.size());
    ASSERT_EQ(recorder.grad_norms.size(), steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double loss = steps[i].at(shards == 1 ? "local_loss" : "mean_local_loss").get<double>();
      const double norm = steps[i].at("grad_norm").get<double>();
      EXPECT_NEAR(recorder.losses[i], loss, tolerance.loss * loss) << "step " << i + 1;
      EXPECT_NEAR(recorder.grad_norms[i], norm, tolerance.norm * norm) << "step " << i + 1;
      EXPECT_NEAR(recorder.learning_rates[i], steps[i].at("learning_rate").get<double>(), 1e-12)
          << "step " << i + 1;
    }
  }

  static void compare_parameters(const json& expected, const nn::ParameterLayout& layout,
                                 std::span<const float> weights, double tolerance) {
    for (const auto& [name, values] : expected.items()) {
      // Softmax does not see a key's bias, nor the head's: their true gradients are 0, and Adam turns rounding noise into steps.
      if (name.ends_with("key.bias") || name == "qa_outputs.bias") continue;
      const nn::ParameterSpec* parameter = layout.find(name);
      ASSERT_NE(parameter, nullptr) << name;
      double squares = 0;
      for (const float w : weights.subspan(parameter->offset, parameter->size))
        squares += static_cast<double>(w) * w;
      const double norm = values.at("norm").get<double>();
      EXPECT_NEAR(std::sqrt(squares), norm, tolerance * norm) << name;
    }
  }
};

TEST_F(Trajectory, OneRankFloat32) {
  compare("trajectory_np1.json.gz", 1, false, {.loss = 1e-4, .norm = 1e-4, .parameters = 1e-4});
}
TEST_F(Trajectory, TwoShardsFloat32) {
  compare("trajectory_np2.json.gz", 2, false, {.loss = 1e-4, .norm = 1e-4, .parameters = 1e-4});
}
TEST_F(Trajectory, OneRankBfloat16) {
  compare("trajectory_np1.json.gz", 1, true, {.loss = 2e-2, .norm = 2e-2, .parameters = 1e-3});
}

}  // namespace
}  // namespace tandem::testing
