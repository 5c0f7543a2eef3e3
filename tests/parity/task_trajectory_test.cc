// Twenty steps of text classification against the Hugging Face Trainer (goldens in ../shared/data):
// losses, gradient norms and parameters. The models are tiny and without dropout.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "parity/training_run.h"
#include "support/gzip.h"
#include "support/test_support.h"
#include "tandem/tasks/text_classification/text_classification_task.h"

namespace tandem::testing {
namespace {

namespace tc = text_classification;
namespace fs = std::filesystem;
using nlohmann::json;

struct Case {
  const char* model;
  const char* task;
  const char* file;
  bool pairs;
};

class TaskTrajectory : public ::testing::TestWithParam<Case> {
 protected:
  static fs::path goldens() { return shared_data() / "golden" / "tasks"; }
  static fs::path model() {
    return goldens() / "models" / ("tiny-" + std::string(GetParam().model));
  }

  // The first 64 rows, with the labels of all.
  static tc::ClassifierOptions read(tc::LabelledTexts& texts, const text::Tokenizer& tokenizer,
                                    ThreadPool& threads) {
    tc::ClassificationArguments arguments;
    if (std::string(GetParam().task) == "multilabel")
      arguments.script = tc::Script::kClassification;
    tc::ExampleReader reader(arguments);
    const std::vector<fs::path> files{shared_data() / "tasks" / GetParam().file};
    tc::RawExamples raw = reader.read(files, std::nullopt, "train", 64);
    const data::Column* column = &raw.labels;
    tc::ClassifierOptions classifier;
    classifier.labels = tc::collect_labels(tc::problem_of(raw.labels, arguments),
                                           std::span(&column, 1), arguments.script);
    texts.examples =
        tc::make_examples(std::move(raw), classifier.labels, " ", GetParam().pairs, true);
    texts.features =
        tc::build_text_features(tokenizer, texts.examples.first, texts.examples.second, 64, threads,
                                [](std::size_t) { return std::string(); });
    return classifier;
  }

  // In parts of the way from the start: of the norm of the way, and of the first values.
  static double error_of_way(const json& expected, std::span<const float> initial,
                             std::span<const float> weights) {
    double squares = 0, largest = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double moved = static_cast<double>(weights[i]) - static_cast<double>(initial[i]);
      squares += moved * moved;
      largest = std::max(largest, std::abs(moved));
    }
    const double way = expected.at("delta_norm");
    double error = std::abs(std::sqrt(squares) - way) / way;
    const json& first = expected.at("first8");
    for (std::size_t k = 0; k < first.size(); ++k) {
      error = std::max(
          error, std::abs(static_cast<double>(weights[k]) - first[k].get<double>()) / largest);
    }
    return error;
  }
};

TEST_P(TaskTrajectory, IsThatOfTheTrainer) {
  const fs::path path = goldens() / ("trajectory_" + std::string(GetParam().model) + "_" +
                                     GetParam().task + ".json.gz");
  if (!fs::exists(path)) GTEST_SKIP() << "needs " << path;
  const json golden = json::parse(read_gzip(path));
  ThreadPool threads(2);
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch(threads.num_threads());
  const text::Tokenizer tokenizer = text::Tokenizer::load(model());
  tc::LabelledTexts texts;
  tc::ClassifierOptions classifier = read(texts, tokenizer, threads);
  tc::TextClassificationTask task(models::ModelConfig::load(model()), tokenizer, {}, classifier);
  task.set_train(std::move(texts));

  trainer::TrainingArguments arguments;
  arguments.per_device_train_batch_size = 8;
  arguments.learning_rate = 1e-3;
  arguments.max_steps = 20;
  std::vector<float> initial;
  const TrainingRecord record = record_task(
      {.model = model(), .config = task.model().config(), .arguments = arguments, .steps = 20},
      task, {threads, kernels, scratch},
      [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
        if (step == 0) initial.assign(weights.begin(), weights.end());
        if (step < 20) return;
        for (const auto& [name, expected] : golden.at("params").at("20").items()) {
          // What is added to all keys changes nothing: its true gradient is 0.
          if (name.ends_with("k_lin.bias") || name.ends_with("key.bias")) continue;
          const nn::ParameterSpec* parameter = layout.find(name);
          ASSERT_NE(parameter, nullptr) << name;
          const auto part = [&](std::span<const float> all) {
            return all.subspan(parameter->offset, parameter->size);
          };
          EXPECT_LE(error_of_way(expected, part(initial), part(weights)), 1e-3) << name;
        }
      });
  const json& steps = golden.at("steps");
  ASSERT_EQ(record.losses.size(), steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double loss = steps[i].at("local_loss"), norm = steps[i].at("grad_norm");
    EXPECT_NEAR(record.losses[i], loss, 1e-4 * loss) << "step " << i + 1;
    EXPECT_NEAR(record.grad_norms[i], norm, 1e-4 * norm) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tasks, TaskTrajectory,
    ::testing::Values(Case{"distilbert", "single", "sst2/train.csv", false},
                      Case{"distilbert", "pair", "stsb_class/train.json", true},
                      Case{"distilbert", "regression", "stsb/train.csv", true},
                      Case{"distilbert", "multilabel", "wnut17_types/train.json", false}),
    [](const auto& instance) {
      return std::string(instance.param.model) + "_" + instance.param.task;
    });

}  // namespace
}  // namespace tandem::testing
