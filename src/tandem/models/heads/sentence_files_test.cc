// The files of sentence-transformers in the forms of its versions, and files that are wrong.
#include "tandem/models/heads/sentence_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/models/heads/sentence_writer.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kSentenceSize = 4;

class SentenceFilesTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_.path() / name).parent_path());
    write_file(folder_.path() / name, text);
  }
  // modules.json of these types; module i > 0 is in the directory "i_Type".
  void put_modules(const std::vector<std::string>& types) const {
    std::string text;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::string last = types[i].substr(types[i].rfind('.') + 1);
      text += fmt::format(R"({}{{"idx": {}, "name": "{}", "path": "{}", "type": "{}"}})",
                          i == 0 ? "" : ", ", i, i, i == 0 ? "" : fmt::format("{}_{}", i, last),
                          types[i]);
    }
    put("modules.json", "[" + text + "]");
  }
  // Reads the files of a model with `width` columns and these classes.
  SentenceFiles read(std::size_t width = kSentenceSize, const char* architectures = "[]") const {
    ModelConfig config = ModelConfig::defaults(kBert);
    config.hidden_size = width;
    config.source = fmt::format(R"({{"architectures": {}}})", architectures);
    return read_sentence_files(folder_.path(), config);
  }
  std::string problem() const {
    try {
      read();
    } catch (const DataError& error) {
      return error.what();
    }
    return "nothing is wrong";
  }

  tandem::testing::TemporaryFolder folder_;
};

const std::vector<std::string> kOld = {"sentence_transformers.models.Transformer",
                                       "sentence_transformers.models.Pooling"};
const std::vector<std::string> kNew = {
    "sentence_transformers.base.modules.transformer.Transformer",
    "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "sentence_transformers.sentence_transformer.modules.normalize.Normalize"};

TEST_F(SentenceFilesTest, ABareEncoderGetsTheMean) {
  const SentenceFiles files = read();
  EXPECT_FALSE(files.from_modules_json);
  EXPECT_THAT(files.poolings, ElementsAre(Pooling::kMean));
  EXPECT_TRUE(files.modules.empty());
  EXPECT_EQ(embedding_size(files, kSentenceSize), kSentenceSize);
}

// As sentence-transformers 5.2 and later choose, by the first class alone.
TEST_F(SentenceFilesTest, ABareDecoderGetsItsLastToken) {
  const auto poolings = [&](const char* classes) { return read(kSentenceSize, classes).poolings; };
  EXPECT_THAT(poolings(R"(["Qwen3ForCausalLM"])"), ElementsAre(Pooling::kLastToken));
  EXPECT_THAT(poolings(R"(["Qwen3Model"])"), ElementsAre(Pooling::kMean));
  EXPECT_THAT(poolings(R"(["GPT2LMHeadModel"])"), ElementsAre(Pooling::kMean));
  EXPECT_THAT(poolings(R"(["Qwen3Model", "Qwen3ForCausalLM"])"), ElementsAre(Pooling::kMean));
  EXPECT_THAT(poolings("[7]"), ElementsAre(Pooling::kMean));
  put_modules(kNew);
  put("1_Pooling/config.json", R"({"embedding_dimension": 4, "pooling_mode": "mean"})");
  EXPECT_THAT(poolings(R"(["Qwen3ForCausalLM"])"), ElementsAre(Pooling::kMean));
}

TEST_F(SentenceFilesTest, KeysOfOldVersions) {
  put_modules(kOld);
  put("1_Pooling/config.json",
      R"({"word_embedding_dimension": 4, "pooling_mode_mean_tokens": true,
          "pooling_mode_cls_token": true, "pooling_mode_max_tokens": false})");
  put("sentence_bert_config.json", R"({"max_seq_length": 77, "do_lower_case": false})");
  const SentenceFiles files = read();
  EXPECT_THAT(files.poolings, ElementsAre(Pooling::kCls, Pooling::kMean));
  EXPECT_EQ(files.max_seq_length, 77u);
  EXPECT_EQ(embedding_size(files, kSentenceSize), 2 * kSentenceSize);
}

TEST_F(SentenceFilesTest, KeysOfNewVersions) {
  put_modules(kNew);
  put("1_Pooling/config.json",
      R"({"embedding_dimension": 4, "pooling_mode": ["mean", "cls"], "include_prompt": false})");
  put("config_sentence_transformers.json",
      R"({"prompts": {"query": "query: "}, "default_prompt_name": "query",
          "similarity_fn_name": "dot"})");
  const SentenceFiles files = read();
  EXPECT_THAT(files.poolings, ElementsAre(Pooling::kCls, Pooling::kMean));
  EXPECT_FALSE(files.include_prompt);
  EXPECT_EQ(files.modules.size(), 1u);
  EXPECT_EQ(files.default_prompt_name, "query");
  EXPECT_EQ(files.prompts.at("query"), "query: ");
  EXPECT_EQ(files.similarity, "dot");
}

// None of the booleans is true: the mean, as sentence-transformers has it.
TEST_F(SentenceFilesTest, NoPoolingIsTheMean) {
  put_modules(kOld);
  put("1_Pooling/config.json", R"({"pooling_mode_cls_token": false})");
  EXPECT_THAT(read().poolings, ElementsAre(Pooling::kMean));
}

TEST_F(SentenceFilesTest, WhatIsWrongIsNamedWithItsFile) {
  put_modules({kOld[0], kOld[1], "sentence_transformers.models.WordWeights"});
  put("1_Pooling/config.json", R"({"pooling_mode": "mean"})");
  EXPECT_THAT(problem(), HasSubstr("modules.json: module 2: unknown module 'WordWeights'"));

  put_modules({"sentence_transformers.models.CLIPModel"});
  EXPECT_THAT(problem(), HasSubstr("module 0: found 'CLIPModel', expected Transformer"));

  put("modules.json", "{}");
  EXPECT_THAT(problem(), HasSubstr("found no modules"));

  put_modules(kOld);
  put("1_Pooling/config.json", R"({"word_embedding_dimension": 8})");
  EXPECT_THAT(problem(), HasSubstr("the embedding dimension is 8, but the encoder's hidden_size"));

  put("1_Pooling/config.json", R"({"pooling_mode": "median"})");
  EXPECT_THAT(problem(), HasSubstr("unknown pooling_mode 'median'; expected one of cls, max"));

  put("1_Pooling/config.json", R"({"include_prompt": "yes"})");
  EXPECT_THAT(problem(), HasSubstr("include_prompt: found \"yes\", expected another type"));

  fs::remove(folder_.path() / "1_Pooling/config.json");
  EXPECT_THAT(problem(), HasSubstr("1_Pooling/config.json: missing"));

  put("modules.json",
      R"([{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "../../etc"}])");
  EXPECT_THAT(problem(), HasSubstr("leads out of the model's directory"));
}

TEST_F(SentenceFilesTest, ADenseModuleMustFit) {
  put_modules({kOld[0], kOld[1], "sentence_transformers.models.Dense"});
  put("1_Pooling/config.json", R"({"pooling_mode": "mean"})");
  put("2_Dense/config.json", R"({"in_features": 3, "out_features": 2})");
  EXPECT_THAT(problem(), HasSubstr("found 3 to 2 features, expected 4 to at least 1"));
  put("2_Dense/config.json",
      R"({"in_features": 4, "out_features": 2, "activation_function": "os.system"})");
  EXPECT_THAT(problem(), HasSubstr("found 'os.system', expected one of torch.nn"));
  put("2_Dense/config.json", R"({"in_features": 4, "out_features": 2})");
  EXPECT_THAT(problem(), HasSubstr("2_Dense"));  // no weights
}

TEST_F(SentenceFilesTest, APromptMustExist) {
  put("config_sentence_transformers.json", R"({"default_prompt_name": "q", "prompts": {}})");
  EXPECT_THAT(problem(), HasSubstr("default_prompt_name 'q' is not among the prompts"));
}

// The keys are those that sentence-transformers 2 to 6 read.
TEST_F(SentenceFilesTest, WhatIsWrittenIsReadAgain) {
  SentenceFiles files;
  files.poolings = {Pooling::kCls, Pooling::kMean};
  files.include_prompt = false;
  files.modules.emplace_back(DenseModule{.in_features = 8,
                                         .out_features = 1,
                                         .weight = {1, 2, 3, 4, 5, 6, 7, 8},
                                         .bias = {9},
                                         .activation = DenseActivation::kGelu});
  files.modules.emplace_back(NormalizeModule{});
  files.prompts = {{"document", "passage: "}, {"query", "query: "}};
  files.default_prompt_name = "query";
  files.similarity = "dot";
  files.max_seq_length = 20;
  write_sentence_files(folder_.path(), files, 4);
  const SentenceFiles again = read(4);
  EXPECT_TRUE(again.from_modules_json);
  EXPECT_EQ(again.poolings, files.poolings);
  EXPECT_FALSE(again.include_prompt);
  ASSERT_EQ(again.modules.size(), 2u);
  const auto& dense = std::get<DenseModule>(again.modules[0]);
  EXPECT_EQ(dense.weight, std::get<DenseModule>(files.modules[0]).weight);
  EXPECT_EQ(dense.bias, std::vector<float>{9});
  EXPECT_EQ(dense.activation, DenseActivation::kGelu);
  EXPECT_TRUE(std::holds_alternative<NormalizeModule>(again.modules[1]));
  EXPECT_EQ(again.prompts, files.prompts);
  EXPECT_EQ(again.default_prompt_name, "query");
  EXPECT_EQ(again.similarity, "dot");
  EXPECT_EQ(again.max_seq_length, 20u);
  // sentence-transformers 2 reads no other file of a Dense module.
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "2_Dense" / "pytorch_model.bin"));
}

TEST(ApplyModules, DenseAndNormalizeAreTheFormulas) {
  DenseModule dense;
  dense.in_features = 2;
  dense.out_features = 2;
  dense.weight = {1, 2, 3, 4};
  dense.bias = {0.5f, -0.5f};
  dense.activation = DenseActivation::kIdentity;
  std::vector<float> values = {1, -1};
  const EmbeddingModule modules[] = {dense, NormalizeModule{}};
  apply_modules(std::span(modules).first(1), values);
  EXPECT_THAT(values, ElementsAre(-0.5f, -1.5f));
  apply_modules(std::span(modules).last(1), values);
  EXPECT_NEAR(values[0], -0.31622777, 1e-7);
  EXPECT_NEAR(values[1], -0.94868330, 1e-7);
  std::vector<float> zero = {0, 0};
  apply_modules(std::span(modules).last(1), zero);
  EXPECT_THAT(zero, ElementsAre(0, 0));
}

}  // namespace
}  // namespace tandem::models
