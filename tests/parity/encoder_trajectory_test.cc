// Training of encoders against the Trainer (goldens in ../shared/data/golden/next/encoders):
// losses, gradient norms, learning rates, and where every parameter went.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "parity/training_run.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/tasks/text_classification/text_classification_task.h"

namespace tandem::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
namespace tc = text_classification;

// Keys' biases have no gradient in exact arithmetic.
bool is_bias_of_keys(std::string_view name) {
  return moves_by_noise(name) || name.ends_with("attn.k.bias");
}

// A run of the Trainer, and by how much its gradient is too long: where the loss of a class is not
// divided by the number of micro-batches (docs/differences.md). Clipping takes that away.
struct TrainerRun {
  std::string name;  // "mpnet_sequence"
  double excess = 1;
};

void PrintTo(const TrainerRun& run, std::ostream* out) { *out << run.name; }

class EncoderTrajectory : public SharedDataTest, public ::testing::WithParamInterface<TrainerRun> {
 protected:
  // The texts stay the golden's.
  tc::LabelledTexts texts_of(const json& golden, const text::Tokenizer& tokenizer) {
    tc::LabelledTexts texts;
    for (const json& text : golden.at("texts"))
      texts.examples.first.emplace_back(text.get_ref<const std::string&>());
    texts.examples.classes = golden.at("labels").get<std::vector<std::int32_t>>();
    texts.features =
        tc::build_text_features(tokenizer, texts.examples.first, {}, golden.at("max_length"),
                                threads_, [](std::size_t) { return ""; });
    return texts;
  }

  ThreadPool threads_{available_cores()};
  kernels::KernelSet kernels_ = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch_{threads_.num_threads()};
};

TEST_P(EncoderTrajectory, IsThatOfTheTrainer) {
  const fs::path next = shared_data() / "golden/next";
  const json golden = json::parse(
      read_file(next / "encoders" / fmt::format("trajectory_{}.json", GetParam().name)));
  json steps = golden.at("steps");
  const json& given = golden.at("arguments");
  trainer::TrainingArguments arguments;
  arguments.per_device_train_batch_size = given.at("per_device_train_batch_size");
  arguments.learning_rate = given.at("learning_rate");
  arguments.max_steps = given.at("max_steps");
  arguments.gradient_accumulation_steps = given.value("gradient_accumulation_steps", 1);
  const fs::path model = next / golden.at("model").get<std::string>();
  const auto tokenizer = text::Tokenizer::load(model);
  tc::ClassifierOptions classifier;
  classifier.labels.names = {"0", "1", "2"};
  tc::TextClassificationTask task(models::ModelConfig::load(model), tokenizer, {}, classifier);
  task.set_train(texts_of(golden, tokenizer));
  std::vector<float> initial;
  const TrainingRecord record = record_task(
      {.model = model,
       .config = task.model().config(),
       .arguments = arguments,
       .steps = arguments.max_steps},
      task, {threads_, kernels_, scratch_},
      [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
        if (step == 0) initial.assign(weights.begin(), weights.end());
        if (step != arguments.max_steps) return;
        EXPECT_EQ(other_ways(golden.at("parameters"), layout, {initial, weights},
                             {.length = 1e-4, .value = 1e-4, .difference = 4e-3}, is_bias_of_keys),
                  std::vector<std::string>());
      });
  ASSERT_EQ(record.losses.size(), steps.size());
  std::vector<double> losses;
  for (json& step : steps) {
    double sum = 0;
    for (const json& loss : step.at("losses")) sum += loss.get<double>();
    losses.push_back(sum / GetParam().excess);
    step["grad_norm"] = step.at("grad_norm").get<double>() / GetParam().excess;
  }
  expect_steps(record, losses, steps, {.loss = 1e-5, .norm = 1e-4});
}

INSTANTIATE_TEST_SUITE_P(Encoders, EncoderTrajectory,
                         ::testing::Values(TrainerRun{"modernbert_sequence"},
                                           TrainerRun{"modernbert_sequence_accumulation_2", 2},
                                           TrainerRun{"mpnet_sequence"},
                                           TrainerRun{"deberta-v3_sequence"}),
                         [](const auto& one) {
                           std::string name = one.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem::testing
