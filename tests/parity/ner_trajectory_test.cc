// The first steps of learning to tag words of small real data, against the Hugging Face Trainer
// (goldens in ../shared/data/golden/tasks): losses, gradient norms, learning rates, and how far and
// where every parameter went. Dropout is 0, because masks cannot match.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "parity/training_run.h"
#include "support/golden_files.h"
#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/tasks/token_classification/labels.h"
#include "tandem/tasks/token_classification/token_classification_task.h"

namespace tandem::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kSamples = 64, kLength = 64, kBatch = 8;

// The task with the first rows of its training data.
std::unique_ptr<tasks::EncoderTask> make_ner(const models::ModelConfig& config,
                                             const text::Tokenizer& tokenizer,
                                             tasks::Padding padding, ThreadPool& threads) {
  namespace ner = token_classification;
  const auto sentences =
      ner::read_sentences(std::vector{shared_data() / "tasks/wnut17/train.json"}, {});
  auto labels = ner::label_names(sentences);
  auto task = std::make_unique<ner::TokenClassificationTask>(
      config, tokenizer, tasks::EncoderTaskOptions{.padding = padding},
      ner::TokenClassificationTask::TagOptions{.labels = labels});
  task->set_train_features(ner::build_features(
      tokenizer, sentences, labels,
      {.max_seq_length = kLength, .max_positions = kLength, .max_samples = kSamples}, threads));
  return task;
}

struct TaskCase {
  const char* model = "";
  tasks::Padding padding = tasks::Padding::kNone;
};

class NerTrajectory : public SharedDataTest, public ::testing::WithParamInterface<TaskCase> {
 protected:
  void SetUp() override {
    SharedDataTest::SetUp();
    if (IsSkipped()) return;
    const std::string model = GetParam().model;
    model_ = model == "minilm" ? minilm_dir()
                               : shared_data() / "golden/tasks/models" / ("tiny-" + model);
    if (!fs::exists(model_ / "model.safetensors"))
      GTEST_SKIP() << "needs a model, which is absent: " << model_;
    if (kAddressSanitized && model == "minilm")
      GTEST_SKIP() << "a step of the real model takes minutes under the address sanitizer";
  }

  fs::path model_;
};

// In parts of the way that the parameter went, and of its largest value. A key's bias has no true
// gradient: Adam turns its rounding noise into steps.
void compare_parameter(const std::string& name, const json& expected,
                       std::span<const float> initial, std::span<const float> weights) {
  if (name.find("key.bias") != std::string::npos || name.find("k_lin.bias") != std::string::npos)
    return;
  constexpr double kTolerance = 1e-4;
  double way = 0, largest = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    way += std::pow(static_cast<double>(weights[i]) - static_cast<double>(initial[i]), 2);
    largest = std::max(largest, std::abs(static_cast<double>(weights[i])));
  }
  const double expected_way = expected.at("delta_norm").get<double>();
  EXPECT_NEAR(std::sqrt(way), expected_way, kTolerance * expected_way) << name;
  const json& first = expected.at("first8");
  for (std::size_t k = 0; k < first.size(); ++k)
    EXPECT_NEAR(weights[k], first[k].get<double>(), kTolerance * largest) << name << " " << k;
}

TEST_P(NerTrajectory, FollowsTheTrainer) {
  const TaskCase& given = GetParam();
  const json golden = read_gzip_json(shared_data() / "golden/tasks" /
                                     fmt::format("trajectory_{}_ner.json.gz", given.model));
  const json& steps = golden.at("steps");
  trainer::TrainingArguments arguments;
  arguments.per_device_train_batch_size = kBatch;
  arguments.learning_rate = golden.at("base_lr").get<double>();
  arguments.max_steps = static_cast<std::int64_t>(steps.size());
  ThreadPool threads(available_cores());
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch(threads.num_threads());
  const auto tokenizer = text::Tokenizer::load(model_, {.add_prefix_space = true});
  auto config = models::ModelConfig::load(model_);
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  const auto task = make_ner(config, tokenizer, given.padding, threads);
  std::vector<float> initial;
  const TrainingRecord record = record_task(
      {.model = model_,
       .config = task->model().config(),
       .arguments = arguments,
       .steps = arguments.max_steps},
      *task, {threads, kernels, scratch},
      [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
        if (step == 0) initial.assign(weights.begin(), weights.end());
        const auto snapshot = golden.at("params").find(std::to_string(step));
        if (snapshot == golden.at("params").end()) return;
        for (const auto& [name, values] : snapshot->items()) {
          const nn::ParameterSpec* parameter = layout.find(name);
          ASSERT_NE(parameter, nullptr) << name;
          compare_parameter(name, values,
                            std::span(initial).subspan(parameter->offset, parameter->size),
                            weights.subspan(parameter->offset, parameter->size));
        }
      });
  ASSERT_EQ(record.losses.size(), steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double loss = steps[i].at("local_loss").get<double>();
    const double norm = steps[i].at("grad_norm").get<double>();
    EXPECT_NEAR(record.losses[i], loss, 1e-5 * loss) << "step " << i + 1;
    EXPECT_NEAR(record.grad_norms[i], norm, 1e-4 * norm) << "step " << i + 1;
    EXPECT_NEAR(record.learning_rates[i], steps[i].at("learning_rate").get<double>(), 1e-12);
  }
}

std::string case_name(const ::testing::TestParamInfo<TaskCase>& one) {
  constexpr const char* kPadding[] = {"", "PaddedToLongest", "PaddedToMaximum"};
  return fmt::format("{}{}", one.param.model, kPadding[static_cast<int>(one.param.padding)]);
}

INSTANTIATE_TEST_SUITE_P(Ner, NerTrajectory,
                         ::testing::Values(TaskCase{"minilm"}, TaskCase{"distilbert"},
                                           TaskCase{"distilbert", tasks::Padding::kLongestOfBatch},
                                           TaskCase{"distilbert", tasks::Padding::kMaxSeqLength},
                                           TaskCase{"electra"}),
                         case_name);

}  // namespace
}  // namespace tandem::testing
