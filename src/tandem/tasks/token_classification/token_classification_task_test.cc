// Tests of what becomes of logits: scores, loss, predictions and the report. No model computes.
#include "tandem/tasks/token_classification/token_classification_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/core/error.h"
#include "tandem/tasks/token_classification/labels.h"
#include "tandem/tasks/token_classification/tags_analysis.h"
#include "tandem/tasks/token_classification/test_data.h"

namespace tandem::token_classification {
namespace {

using tasks::Split;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

models::ModelConfig small_config() {
  return models::ModelConfig::parse(
      R"({"model_type": "bert", "vocab_size": 32, "hidden_size": 8, "num_hidden_layers": 1,
          "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 16})",
      "test");
}

const std::vector<std::string> kLabels{"B-x", "I-x", "O"};

// Two sentences of the labels above, evaluated one by one without padding, the longer one first.
class TokenEvaluation : public ::testing::Test {
 protected:
  explicit TokenEvaluation(TokenClassificationTask::TagOptions options = {.labels = kLabels},
                           std::size_t batch = 1)
      : task_(small_config(), tokenizer_, {.eval_batch_size = batch}, std::move(options)) {}

  void set(Split split, SentenceSet sentences) {
    EvaluationSet set{std::move(sentences), {}};
    set.features =
        build_features(tokenizer_, set.sentences, kLabels, {.max_positions = 16}, threads_);
    task_.set_evaluation(split, std::move(set));
  }
  // Logits of a row: 1 for the label, 0 for the others.
  static void append(std::vector<float>& output, std::vector<std::size_t> labels) {
    for (const std::size_t label : labels) {
      for (std::size_t i = 0; i < kLabels.size(); ++i) output.push_back(i == label ? 1.0f : 0.0f);
    }
  }

  text::Tokenizer tokenizer_ = testing::letter_tokenizer();
  ThreadPool threads_{1};
  TokenClassificationTask task_;
};

TEST_F(TokenEvaluation, ScoresAndLoss) {
  set(Split::kEval, testing::sentences({{"a/O"}, {"as/B-x", "b/I-x"}}));
  std::vector<float> output;
  append(output, {2, 0, 1, 2, 0});  // [CLS] a ##s b [SEP]: B-x, O
  append(output, {2, 2, 2});        // [CLS] a [SEP]: O
  const auto found = task_.evaluate(Split::kEval, output, "", "eval", threads_);
  const double right = -std::log(std::exp(1.0) / (std::exp(1.0) + 2));
  const double wrong = right + 1;
  EXPECT_EQ(found.metrics.size(), 5u);
  EXPECT_NEAR(found.metrics["loss"].get<double>(), (right + (right + wrong) / 2) / 2, 1e-12);
  EXPECT_EQ(found.metrics["precision"], 0.0);
  EXPECT_EQ(found.metrics["f1"], 0.0);
  EXPECT_EQ(found.metrics["accuracy"].get<double>(), 2.0 / 3);
  const WrongTags wrong_tags = task_.wrong_tags(10);
  EXPECT_EQ(wrong_tags.num_sentences, 2u);
  EXPECT_EQ(wrong_tags.num_wrong, 1u);
  ASSERT_EQ(wrong_tags.shown.size(), 1u);
  EXPECT_EQ(wrong_tags.shown[0].words[1].expected, "I-x");
  EXPECT_EQ(wrong_tags.shown[0].words[1].predicted, "O");
  const tasks::Analysis analysis = analyze(*task_.scores(), wrong_tags);
  EXPECT_THAT(analysis.title, HasSubstr("in 1 of 2 sentences"));
  ASSERT_EQ(analysis.mistakes.size(), 1u);
  EXPECT_EQ(analysis.mistakes[0].texts[0].back().text, "O instead of I-x");
}

class EntityLevel : public TokenEvaluation {
 protected:
  EntityLevel() : TokenEvaluation({.labels = kLabels, .entity_level = true}) {}
};

TEST_F(EntityLevel, EveryTypeHasItsScores) {
  set(Split::kEval, testing::sentences({{"a/B-x", "b/I-x"}}));
  std::vector<float> output;
  append(output, {2, 0, 1, 2});
  const auto found = task_.evaluate(Split::kEval, output, "", "eval", threads_);
  std::vector<std::string> keys;
  for (const auto& [key, value] : found.metrics.items()) keys.push_back(key);
  EXPECT_THAT(
      keys, ElementsAre("loss", "x_precision", "x_recall", "x_f1", "x_number", "overall_precision",
                        "overall_recall", "overall_f1", "overall_accuracy"));
  EXPECT_EQ(found.metrics["x_f1"], 1.0);
  EXPECT_TRUE(found.metrics["x_number"].is_number_integer());
}

TEST_F(TokenEvaluation, PredictionsHaveALinePerRow) {
  const tandem::testing::TemporaryFolder folder;
  set(Split::kPredict, testing::read_json("{\"tokens\": [\"a\"]}\n{\"tokens\": []}\n"
                                          "{\"tokens\": [\"b\", \"\", \"c\"]}",
                                          {.require_tags = false}));
  std::vector<float> output;
  append(output, {2, 0, 1, 2});  // b c
  append(output, {2, 2, 2});     // a
  append(output, {2, 2});
  const auto found = task_.evaluate(Split::kPredict, output, folder.path(), "predict", threads_);
  EXPECT_TRUE(found.metrics.empty());
  EXPECT_EQ(read_file(folder / "predictions.txt"), "O\n\nB-x I-x\n");
}

TEST_F(TokenEvaluation, TheConfigNamesTheLabels) {
  EXPECT_EQ(task_.model().config().labels, kLabels);
  const std::string json = task_.model().config().to_json(task_.model().architecture());
  EXPECT_THAT(json, HasSubstr("\"BertForTokenClassification\""));
  EXPECT_THAT(json, HasSubstr("\"label2id\": {\n    \"B-x\": 0,\n    \"I-x\": 1,\n    \"O\": 2\n"));
}

TEST_F(TokenEvaluation, RefusesASetWithoutAnyWord) {
  EXPECT_THROW(set(Split::kEval, testing::sentences({{"/O"}})), DataError);
}

TEST_F(TokenEvaluation, FingerprintsFollowLabels) {
  set(Split::kEval, testing::sentences({{"a/O", "b/B-x"}}));
  set(Split::kPredict, testing::sentences({{"a/O", "b/I-x"}}));
  EXPECT_NE(task_.evaluation_fingerprint(Split::kEval),
            task_.evaluation_fingerprint(Split::kPredict));
}

}  // namespace
}  // namespace tandem::token_classification
