// The head of LogitScore: gradients against central differences, with an output matrix of its own
// and with that of the words; and its files.
#include "tandem/models/heads/logit_score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using nlohmann::json;
using nn::Precision;
using ::testing::HasSubstr;

constexpr LogitScore kScore = {.true_token = 7, .false_token = 9};

class LogitScoreHeadTest : public ::testing::TestWithParam<bool> {
 protected:
  static ModelConfig config() {
    ModelConfig config = testing::tiny_config(kQwen3);
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
    config.embedding_dropout = 0;
    config.tie_word_embeddings = GetParam();
    return config;
  }

  LogitScoreHeadTest()
      : made_(config(), 5, std::bind_front(make_logit_score_head, kScore)), weights_(made_.f32) {
    batch_.append(std::vector<std::int32_t>{3, 7, 12, 5}, {}, 0);
    batch_.append(std::vector<std::int32_t>{9, 2}, {}, 1);
  }

  // The sum of factor · logit, in f64.
  double value() {
    forward();
    return kFactors[0] * static_cast<double>(logits_[0]) +
           kFactors[1] * static_cast<double>(logits_[1]);
  }
  void forward() {
    activations_ = made_.model.make_activations({batch_.rows(), batch_.num_sequences()},
                                                Precision::kFloat32, PassKind::kTraining);
    made_.model.forward(context_, {weights_, {}}, batch_, {}, activations_, logits_);
  }
  std::vector<float> gradients(bool accumulate, float before) {
    forward();
    std::vector<float> grads(weights_.size(), before);
    const std::vector<float> grad_logits(std::begin(kFactors), std::end(kFactors));
    made_.model.backward(context_, {weights_, {}}, batch_, {}, grad_logits, activations_, grads,
                         accumulate, [](std::size_t) {});
    return grads;
  }

  static constexpr float kFactors[] = {1.0f, -0.5f};
  TestContext context_{2, "", Precision::kFloat32};
  testing::TestModel made_;
  std::vector<float> weights_;
  nn::PackedBatch batch_;
  Activations activations_;
  std::vector<float> logits_ = std::vector<float>(2);
};

INSTANTIATE_TEST_SUITE_P(Matrices, LogitScoreHeadTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "OfWords" : "Own"; });

TEST_P(LogitScoreHeadTest, GradientsAreThoseOfCentralDifferences) {
  const std::vector<float> grads = gradients(/*accumulate=*/false, 3.0f);
  for (const nn::ParameterSpec& parameter : made_.model.layout().parameters()) {
    const bool table = parameter.shape.size() == 2 && parameter.shape[0] == config().vocab_size;
    const std::size_t width = parameter.shape.back();
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{1}, table ? 7 * width + 2 : 2, table ? 9 * width + 3 : 3}) {
      float& weight = weights_[parameter.offset + at];
      const float kept = weight;
      constexpr float kStep = 1e-2f;
      weight = kept + kStep;
      const double above = value();
      weight = kept - kStep;
      const double below = value();
      weight = kept;
      const double expected = (above - below) / (2 * static_cast<double>(kStep));
      EXPECT_NEAR(grads[parameter.offset + at], expected, 2e-3 + 2e-2 * std::abs(expected))
          << parameter.name << " " << at;
    }
  }
}

TEST_P(LogitScoreHeadTest, AccumulatesItsGradients) {
  const std::vector<float> once = gradients(/*accumulate=*/false, 3.0f);
  const std::vector<float> twice = gradients(/*accumulate=*/true, 0.25f);
  for (const nn::ParameterSpec& parameter : made_.model.layout().parameters())
    for (std::size_t i = parameter.offset; i < parameter.end(); ++i)
      ASSERT_NEAR(twice[i], once[i] + 0.25f, 1e-5) << parameter.name;
}

TEST_P(LogitScoreHeadTest, IsTheDifferenceOfTwoLogits) {
  const auto logits_of = [&](const LogitScore& score) {
    const testing::TestModel other(config(), 5, std::bind_front(make_logit_score_head, score));
    std::vector<float> logits(2);
    auto activations =
        other.model.make_activations({batch_.rows(), 2}, Precision::kFloat32, PassKind::kInference);
    other.model.forward(context_, {other.f32, {}}, batch_, {}, activations, logits);
    return logits;
  };
  forward();
  const auto yes = logits_of({.true_token = 7, .false_token = {}});
  const auto no = logits_of({.true_token = 9, .false_token = {}});
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(logits_[i], yes[i] - no[i], 1e-6);
}

TEST(LogitScoreFiles, AreReadAsTheyWereWritten) {
  const tandem::testing::TemporaryFolder folder;
  ModelConfig config = testing::tiny_config(kQwen3);
  for (const LogitScore& score : {kScore, LogitScore{.true_token = 3, .false_token = {}}}) {
    write_logit_score(folder.path(),
                      {.score = score,
                       .messages = {.structured = true, .add_generation_prompt = true},
                       .prompts = {{{"own", "judge"}}, "own"}},
                      DenseActivation::kSigmoid);
    const auto read = read_logit_score(folder.path(), config);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->score.true_token, score.true_token);
    EXPECT_EQ(read->score.false_token, score.false_token);
    EXPECT_TRUE(read->messages.structured);
    EXPECT_TRUE(read->messages.add_generation_prompt);
    EXPECT_TRUE(read->messages.restore_suffix);
    EXPECT_EQ(read->prompts.default_prompt(), "judge");
  }
}

TEST(LogitScoreFiles, WhatIsWrongIsNamed) {
  const tandem::testing::TemporaryFolder folder;
  const ModelConfig config = testing::tiny_config(kQwen3);
  EXPECT_FALSE(read_logit_score(folder.path(), config));
  write_logit_score(folder.path(), {.score = kScore}, DenseActivation::kSigmoid);
  const auto error_with = [&](const char* text) {
    write_file(folder / "1_LogitScore/config.json", text);
    try {
      read_logit_score(folder.path(), config);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_with("{}"), HasSubstr("true_token_id: found -1, expected a token"));
  EXPECT_THAT(error_with(R"({"true_token_id": 3, "false_token_id": 40})"),
              HasSubstr("false_token_id: found 40, expected a token of the model, 0 to 39"));
  EXPECT_THAT(error_with(R"({"true_token_id": "yes"})"), HasSubstr("true_token_id"));
  EXPECT_THAT(error_with(R"({"true_token_id": 3, "module_input_name": "scores"})"),
              HasSubstr("expected causal_logits"));
  const std::string good = R"({"true_token_id": 3})";
  EXPECT_EQ(error_with(good.c_str()), "no error");
  const auto error_of_transformer = [&](const char* text) {
    write_file(folder / "sentence_bert_config.json", text);
    return error_with(good.c_str());
  };
  EXPECT_THAT(error_of_transformer(R"({"transformer_task": "text-generation"})"),
              HasSubstr("found no modality_config with \"message\""));
  EXPECT_THAT(error_of_transformer(R"({"modality_config": {"message": {"format": "other"}}})"),
              HasSubstr("found 'other', expected flat or structured"));
  EXPECT_THAT(error_of_transformer(R"({"modality_config": {"message": {}},
                                       "processing_kwargs": {"chat_template": {"tools": []}}})"),
              HasSubstr("tools: found [], expected add_generation_prompt"));
  EXPECT_THAT(error_of_transformer(R"({"modality_config": {"message": {}},
                                       "processing_kwargs": {"text": {"max_length": 8}}})"),
              HasSubstr("expected an object chat_template alone"));
  json modules = json::parse(read_file(folder / "modules.json"));
  modules.push_back({{"path", "2_Dense"}, {"type", "sentence_transformers.models.Dense"}});
  write_file(folder / "modules.json", modules.dump());
  EXPECT_THAT(error_with("{}"),
              HasSubstr("found 3 modules, expected a Transformer and LogitScore"));
}

}  // namespace
}  // namespace tandem::models
