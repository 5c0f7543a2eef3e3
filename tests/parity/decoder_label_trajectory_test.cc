// Decoders that label texts and score pairs, trained beside the Trainer of transformers and the
// CrossEncoderTrainer of sentence-transformers (tests/parity/golden/decoders/labels.json, which
// make_decoder_label_goldens.py writes): losses, gradient norms, learning rates, and where every
// parameter went.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parity/training_run.h"
#include "support/decoder_tokenizer.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/tasks/reranking/pair_rows.h"
#include "tandem/tasks/reranking/reranking_task.h"
#include "tandem/tasks/text_classification/text_classification_task.h"

namespace tandem::testing {
namespace {

using nlohmann::json;
namespace tc = text_classification;
namespace reranking = tasks::reranking;

// The bias of a key adds the same to all scores of a query.
bool is_bias_of_a_key(std::string_view name) { return name.ends_with("k_proj.bias"); }

class DecoderLabelTrajectory : public ::testing::Test {
 protected:
  void use(const std::string& part) {
    golden_ = json::parse(read_file(std::filesystem::path(TANDEM_SOURCE_DIR) /
                                    "tests/parity/golden/decoders/labels.json"))
                  .at(part);
    if (golden_.contains("score"))
      write_decoder_label_model(folder_.path(), golden_.at("score"));
    else
      write_logit_reranker(folder_.path(), golden_);
    tokenizer_ = text::Tokenizer::load(folder_.path());
  }
  models::ModelConfig config() const {
    return models::ModelConfig::load(folder_.path(), models::decoder_families());
  }
  tc::TextFeatures features(const std::vector<std::string>& first,
                            const std::vector<std::string>& second) {
    const std::vector<std::string_view> a(first.begin(), first.end());
    const std::vector<std::string_view> b(second.begin(), second.end());
    return tc::build_text_features(*tokenizer_, a, b, 64, threads_, [](std::size_t) { return ""; });
  }
  std::vector<std::string> column(const char* name) const {
    std::vector<std::string> texts;
    for (const json& row : golden_.at("rows")) texts.push_back(row.at(name));
    return texts;
  }

  void expect_the_way_of_the_trainer(reranking::RerankerOptions options,
                                     tc::TextFeatures features) {
    options.loss.name = golden_.at("loss").get<std::string>();
    reranking::RerankingTask task(config(), *tokenizer_, {}, options);
    reranking::LabelledPairs pairs;
    pairs.features = std::move(features);
    for (const json& row : golden_.at("rows")) {
      pairs.begins.push_back(pairs.begins.back() + 1);
      pairs.labels.push_back(row.at("label").get<float>());
    }
    task.set_train(std::move(pairs));
    expect_the_way_of_the_trainer(task);
  }
  void expect_the_way_of_the_trainer(tasks::EncoderTask& task) {
    const json& steps = golden_.at("steps");
    const json& given = golden_.at("arguments");
    trainer::TrainingArguments arguments;
    arguments.per_device_train_batch_size = given.at("per_device_train_batch_size");
    arguments.learning_rate = given.at("learning_rate");
    arguments.max_steps = given.at("max_steps");
    std::vector<float> initial;
    const TrainingRecord record = record_task(
        {.model = folder_.path(),
         .config = task.model().config(),
         .arguments = arguments,
         .steps = arguments.max_steps},
        task, {threads_, kernels_, scratch_},
        [&](std::int64_t step, const nn::ParameterLayout& layout, std::span<const float> weights) {
          if (step == 0) initial.assign(weights.begin(), weights.end());
          if (step != arguments.max_steps) return;
          EXPECT_EQ(
              other_ways(golden_.at("parameters"), layout, {initial, weights},
                         {.length = 1e-4, .value = 1e-4, .difference = 4e-3}, is_bias_of_a_key),
              std::vector<std::string>());
        });
    ASSERT_EQ(record.losses.size(), steps.size());
    std::vector<double> losses;
    for (const json& step : steps) losses.push_back(step.at("losses")[0]);
    expect_steps(record, losses, steps, {.loss = 1e-5, .norm = 1e-4});
  }

  TemporaryFolder folder_;
  json golden_;
  std::optional<text::Tokenizer> tokenizer_;
  ThreadPool threads_{available_cores()};
  kernels::KernelSet kernels_ = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch_{threads_.num_threads()};
};

TEST_F(DecoderLabelTrajectory, LabelsOfTexts) {
  use("texts");
  tc::ClassifierOptions classifier;
  classifier.labels.names = {"0", "1", "2"};
  tc::TextClassificationTask task(config(), *tokenizer_, {}, classifier);
  const std::vector<std::string> texts = column("sentence");
  tc::LabelledTexts labelled;
  labelled.examples.first.assign(texts.begin(), texts.end());
  for (const json& row : golden_.at("rows"))
    labelled.examples.classes.push_back(row.at("label").get<std::int32_t>());
  labelled.features = features(texts, {});
  task.set_train(std::move(labelled));
  expect_the_way_of_the_trainer(task);
}

TEST_F(DecoderLabelTrajectory, ScoresOfPairs) {
  use("pairs");
  expect_the_way_of_the_trainer({}, features(column("query"), column("passage")));
}

TEST_F(DecoderLabelTrajectory, LogitsOfTokens) {
  use("logits");
  reranking::RerankerOptions options;
  options.logit = reranking::read_logit_reranker(folder_.path(), config(), *tokenizer_);
  const text::PairPrompt& prompt = *options.logit->prompt;
  const auto queries = column("query"), passages = column("passage");
  tc::TextFeatures made = tc::build_made_features(
      *tokenizer_, queries.size(),
      [&](std::size_t i) { return prompt.text(queries[i], passages[i]); }, prompt.end(), 64,
      threads_, [](std::size_t) { return ""; });
  EXPECT_EQ(made.num_truncated(), 1u);
  expect_the_way_of_the_trainer(options, std::move(made));
}

}  // namespace
}  // namespace tandem::testing
