#include "tandem/report/model_card.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ModelCard squad_card() {
  return {.name = "debug_squad",
          .base_model = "bert-large-uncased",
          .task_name = "Question Answering",
          .task_type = "question-answering",
          .listed_metrics = {"f1", "exact_match"},
          .dataset_name = "squad",
          .dataset_config = std::nullopt,
          .dataset_title = std::nullopt,
          .language = std::nullopt,
          .license = std::nullopt,
          .eval_metrics = {{"eval_exact_match", 81.22043},
                           {"eval_f1", 88.5},
                           {"eval_runtime", 3.5},
                           {"eval_samples", 10784},
                           {"epoch", 2.0}},
          .hyperparameters = {{"learning_rate", "3e-05"}},
          .evaluations = {{{"eval_f1", 80.123456},
                           {"eval_runtime", 3.0},
                           {"epoch", 1.0},
                           {"step", 100},
                           {"loss", 1.5}}},
          .frameworks = {{"tandem", "0.1.0"}}};
}

TEST(ModelCard, HasTheMetadataOfTheHub) {
  EXPECT_THAT(
      model_card_markdown(squad_card()),
      StartsWith("---\n"
                 "library_name: transformers\n"
                 "base_model: bert-large-uncased\n"
                 "tags:\n- generated_from_trainer\n"
                 "datasets:\n- squad\n"
                 "metrics:\n- exact_match\n- f1\n"
                 "model-index:\n- name: debug_squad\n  results:\n"
                 "  - task:\n      name: Question Answering\n      type: question-answering\n"
                 "    dataset:\n      name: squad\n      type: squad\n"
                 "    metrics:\n"
                 "    - name: Exact Match\n      type: exact_match\n      value: 81.22043\n"
                 "    - name: F1\n      type: f1\n      value: 88.5\n"
                 "---\n"));
}

TEST(ModelCard, ANewModelHasNoBase) {
  ModelCard card = squad_card();
  card.base_model = "";
  const std::string text = model_card_markdown(card);
  EXPECT_THAT(text, HasSubstr("\n\nThis model was trained from scratch on the squad dataset.\n"));
  EXPECT_THAT(text, Not(HasSubstr("base_model")));
}

TEST(ModelCard, ATaskOfGlue) {
  ModelCard card = squad_card();
  card.dataset_name = "glue";
  card.dataset_config = "stsb";
  card.dataset_title = "GLUE STSB";
  card.language = "en";
  card.listed_metrics = {"spearmanr"};
  card.eval_metrics = {{"eval_pearson", 0.5}};
  const std::string text = model_card_markdown(card);
  EXPECT_THAT(text, HasSubstr("language:\n- en\n"));
  EXPECT_THAT(text, HasSubstr("datasets:\n- glue\nmodel-index:\n"));  // no list without entries
  EXPECT_THAT(text, HasSubstr("name: GLUE STSB\n      type: glue\n      args: stsb\n"));
  EXPECT_THAT(text, HasSubstr("on the GLUE STSB dataset.\n"));
}

TEST(ModelCard, HasTheHeadingsOfTransformers) {
  const std::string text = model_card_markdown(squad_card());
  EXPECT_THAT(
      text,
      HasSubstr(
          "\n# debug_squad\n\nThis model is a fine-tuned version of "
          "[bert-large-uncased](https://huggingface.co/bert-large-uncased) on the squad dataset.\n"
          "It achieves the following results on the evaluation set:\n- Exact Match: 81.2204\n- F1: "
          "88.5\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "\nThe following hyperparameters were used during training:\n- learning_rate: 3e-05\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "| Training Loss | Epoch | Step | F1      |\n|:-------------:|:-----:|:----:|:-------:|\n"
          "| 1.5           | 1.0   | 100  | 80.1235 |\n"));
  EXPECT_THAT(text, HasSubstr("### Framework versions\n\n- tandem 0.1.0\n"));
}

TEST(ModelCard, OfAnEvaluationAloneHasNoTrainingResults) {
  ModelCard card = squad_card();
  card.trained = false;
  card.evaluations.clear();
  const std::string text = model_card_markdown(card);
  EXPECT_THAT(text, Not(HasSubstr("Training results")));
  EXPECT_THAT(text, HasSubstr("- learning_rate: 3e-05\n\n### Framework versions\n"));
}

TEST(ModelCard, OfLocalFilesNamesThemWithoutLinks) {
  ModelCard card = squad_card();
  card.dataset_name.reset();
  card.base_model = "/models/bert";
  card.eval_metrics = nlohmann::ordered_json::object();
  const std::string text = model_card_markdown(card);
  EXPECT_THAT(text, HasSubstr("fine-tuned version of /models/bert on an unknown dataset."));
  EXPECT_THAT(text, HasSubstr("- name: debug_squad\n  results: []\n---"));
  EXPECT_THAT(text, Not(HasSubstr("datasets:")));
}

TEST(YamlScalar, QuotesWhatWouldBeReadOtherwise) {
  for (const char* plain : {"squad", "/tmp/a_b", "Exact Match", "org/name-v1.5"})
    EXPECT_EQ(yaml_scalar(plain), plain);
  for (const char* other : {"", "true", "No", "1e5", "-x", "a: b", "#x", "{}", "a "})
    EXPECT_EQ(yaml_scalar(other), fmt::format("'{}'", other));
  EXPECT_EQ(yaml_scalar("it's"), "'it''s'");
  EXPECT_EQ(yaml_scalar("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(yaml_scalar("caf\u00e9"), "\"caf\\u00e9\"");
}

}  // namespace
}  // namespace tandem::report
