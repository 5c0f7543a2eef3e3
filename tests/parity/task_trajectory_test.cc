// Twenty steps of every family with every task that labels texts or words, on small real data,
// against the Hugging Face Trainer (goldens in ../shared/data/golden/tasks): losses, gradient
// norms, learning rates, and how far and where every parameter went. Dropout is 0, because masks
// cannot match.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "parity/training_run.h"
#include "support/golden_files.h"
#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/core/json.h"
#include "tandem/tasks/text_classification/test_data.h"
#include "tandem/tasks/text_classification/text_classification_task.h"
#include "tandem/tasks/token_classification/labels.h"
#include "tandem/tasks/token_classification/token_classification_task.h"

namespace tandem::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kSamples = 64, kLength = 64, kBatch = 8;

// --- the tasks with the first rows of their training data ---

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

std::unique_ptr<tasks::EncoderTask> make_classifier(const models::ModelConfig& config,
                                                    const text::Tokenizer& tokenizer,
                                                    const std::string& name, tasks::Padding padding,
                                                    ThreadPool& threads) {
  namespace tc = text_classification;
  const auto* row =
      std::find_if(std::begin(tc::testing::kGoldenTasks), std::end(tc::testing::kGoldenTasks),
                   [&](const auto& one) { return one.name == name; });
  auto [labels, examples] = tc::testing::read_golden_rows(*row);
  tc::ClassifierOptions classifier;
  classifier.labels = std::move(labels);
  auto task = std::make_unique<tc::TextClassificationTask>(
      config, tokenizer, tasks::EncoderTaskOptions{.padding = padding}, std::move(classifier));
  tc::LabelledTexts texts{.examples = std::move(examples), .features = {}};
  texts.features = tc::build_text_features(tokenizer, texts.examples.first, texts.examples.second,
                                           kLength, threads, [](std::size_t) { return ""; });
  task->set_train(std::move(texts));
  return task;
}

// --- the comparison ---

struct Case {
  std::string model, task;
  tasks::Padding padding = tasks::Padding::kNone;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.model << ", " << one.task; }

class TaskTrajectory : public SharedDataTest, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    SharedDataTest::SetUp();
    if (IsSkipped()) return;
    const std::string& model = GetParam().model;
    model_ = model == "minilm" ? minilm_dir()
                               : shared_data() / "golden/tasks/models" / ("tiny-" + model);
    if (!fs::exists(model_ / "model.safetensors"))
      GTEST_SKIP() << "needs a model, which is absent: " << model_;
    if (kAddressSanitized && model == "minilm")
      GTEST_SKIP() << "a step of the real model takes minutes under the address sanitizer";
  }

  fs::path model_;
};

constexpr WayError kTolerance{.length = 1e-4, .value = 1e-4, .difference = 0};

std::vector<double> local_losses(const json& steps) {
  std::vector<double> losses;
  for (const json& step : steps) losses.push_back(step.at("local_loss"));
  return losses;
}

TEST_P(TaskTrajectory, IsThatOfTheTrainer) {
  const Case& given = GetParam();
  const json golden =
      read_gzip_json(shared_data() / "golden/tasks" /
                     fmt::format("trajectory_{}_{}.json.gz", given.model, given.task));
  const json& steps = golden.at("steps");
  trainer::TrainingArguments arguments;
  arguments.per_device_train_batch_size = kBatch;
  arguments.learning_rate = golden.at("base_lr").get<double>();
  arguments.max_steps = static_cast<std::int64_t>(steps.size());
  ThreadPool threads(available_cores());
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch(threads.num_threads());
  const bool ner = given.task == "ner";
  const auto tokenizer = text::Tokenizer::load(
      model_, ner ? text::TokenizerOptions{.add_prefix_space = true} : text::TokenizerOptions{});
  auto config = models::ModelConfig::load(model_);
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  const auto task = ner ? make_ner(config, tokenizer, given.padding, threads)
                        : make_classifier(config, tokenizer, given.task, given.padding, threads);
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
        EXPECT_EQ(other_ways(*snapshot, layout, {initial, weights}, kTolerance, moves_by_noise),
                  std::vector<std::string>());
      });
  EXPECT_EQ(record.losses.size(), steps.size());
  expect_steps(record, local_losses(steps), steps, {.loss = 1e-5, .norm = 1e-4});
}

// Each family with each task, and one of them padded in both ways.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* model : {"minilm", "distilbert", "roberta", "xlmr", "electra"}) {
    for (const char* task : {"single", "pair", "regression", "multilabel", "ner"})
      all.push_back({.model = model, .task = task});
  }
  for (const char* task : {"single", "ner"}) {
    all.push_back({"distilbert", task, tasks::Padding::kLongestOfBatch});
    all.push_back({"distilbert", task, tasks::Padding::kMaxSeqLength});
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Case>& one) {
  constexpr const char* kPadding[] = {"", "_padded_to_longest", "_padded_to_maximum"};
  return one.param.model + "_" + one.param.task + kPadding[static_cast<int>(one.param.padding)];
}

INSTANTIATE_TEST_SUITE_P(Tasks, TaskTrajectory, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace tandem::testing
