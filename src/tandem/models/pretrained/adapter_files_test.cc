#include "tandem/models/pretrained/adapter_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/encoder/lora.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/models/pretrained/merged_model.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::unique_ptr<Head> two_labels(const ModelConfig& config, nn::ParameterLayout& layout) {
  return make_sequence_head(2, config, layout);
}

// A base model on disk, and the same with adapters on queries and values.
class AdapterFilesTest : public ::testing::Test {
 protected:
  AdapterFilesTest() {
    const testing::TestModel base(config_, 3, two_labels);
    save_pretrained(base_dir(), config_, "BertForSequenceClassification", base.model.layout(),
                    base.f32);
    LoraConfig lora;
    lora.r = 4;
    lora.lora_alpha = 6;
    lora.rank_pattern = {{"value", 3}};
    lora.modules_to_save = {"classifier", "score"};
    lora.base_model_name_or_path = base_dir().string();
    adapted_config_ = config_;
    adapted_config_.lora = std::make_shared<const LoraConfig>(lora);
  }

  fs::path base_dir() const { return made(directory_.path() / "base"); }
  fs::path adapter_dir() const { return made(directory_.path() / "adapter"); }
  fs::path merged_dir() const { return made(directory_.path() / "merged"); }
  static fs::path made(const fs::path& path) {
    fs::create_directories(path);
    return path;
  }

  // An adapter whose values all differ from the initial ones.
  testing::TestModel save_trained() const {
    testing::TestModel trained(adapted_config_, 5, two_labels);
    load_pretrained(base_dir(), adapted_config_, trained.model.layout(), trained.f32, {.seed = 7});
    std::size_t i = 0;
    for (const nn::ParameterSpec& parameter : trained.model.layout().parameters()) {
      if (!parameter.trainable) continue;
      for (std::size_t k = 0; k < parameter.size; ++k)
        trained.f32[parameter.offset + k] = 0.3f * std::sin(static_cast<float>(++i));
    }
    save_pretrained(adapter_dir(), adapted_config_, "BertForSequenceClassification",
                    trained.model.layout(), trained.f32);
    return trained;
  }

  tandem::testing::TemporaryFolder directory_;
  ModelConfig config_ = testing::tiny_config(kBert);
  ModelConfig adapted_config_;
};

TEST_F(AdapterFilesTest, HoldTheTrainedParametersUnderPeftsNames) {
  save_trained();
  const formats::SafetensorsFile file(adapter_dir() / "adapter_model.safetensors");
  std::vector<std::string> names;
  for (const formats::TensorView& tensor : file.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(
      names, ElementsAre("base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight",
                         "base_model.model.bert.encoder.layer.0.attention.self.query.lora_B.weight",
                         "base_model.model.bert.encoder.layer.0.attention.self.value.lora_A.weight",
                         "base_model.model.bert.encoder.layer.0.attention.self.value.lora_B.weight",
                         "base_model.model.bert.encoder.layer.1.attention.self.query.lora_A.weight",
                         "base_model.model.bert.encoder.layer.1.attention.self.query.lora_B.weight",
                         "base_model.model.bert.encoder.layer.1.attention.self.value.lora_A.weight",
                         "base_model.model.bert.encoder.layer.1.attention.self.value.lora_B.weight",
                         "base_model.model.classifier.bias", "base_model.model.classifier.weight"));
  const std::string config = read_file(adapter_dir() / "adapter_config.json");
  EXPECT_THAT(config, HasSubstr("\"task_type\": \"SEQ_CLS\""));
  EXPECT_THAT(config, HasSubstr("\"query\",\n    \"value\""));
  EXPECT_THAT(config, HasSubstr("\"modules_to_save\": [\n    \"classifier\"\n  ]"));
  EXPECT_FALSE(is_adapter_directory(base_dir()));
  EXPECT_TRUE(is_adapter_directory(adapter_dir()));
}

// transformers would take the directory for a whole model.
TEST_F(AdapterFilesTest, OnlyLabelsNeedAConfiguration) {
  const testing::TestModel trained = save_trained();
  EXPECT_TRUE(std::filesystem::remove(adapter_dir() / "config.json"));
  save_pretrained(adapter_dir(), adapted_config_, "BertForQuestionAnswering",
                  trained.model.layout(), trained.f32);
  EXPECT_FALSE(std::filesystem::exists(adapter_dir() / "config.json"));
}

TEST_F(AdapterFilesTest, LoadToTheBit) {
  const testing::TestModel trained = save_trained();
  testing::TestModel again(adapted_config_, 9, two_labels);
  const LoadReport report = load_pretrained(base_dir(), adapted_config_, again.model.layout(),
                                            again.f32, {.adapter = adapter_dir()});
  EXPECT_EQ(again.f32, trained.f32);
  EXPECT_THAT(report.newly_initialized, ::testing::IsEmpty());
  EXPECT_THAT(report.unused, ::testing::IsEmpty());
}

// In bf16 the matrices of frozen layers are written to the copy alone, and that is all that a pass
// needs.
TEST_F(AdapterFilesTest, FrozenMatricesMayExistInBf16Alone) {
  testing::TestModel whole = save_trained();
  const nn::ParameterLayout& layout = whole.model.layout();
  std::ranges::transform(whole.f32, whole.bf16.begin(), to_bfloat16);
  testing::TestModel halved(adapted_config_, 9, two_labels);
  halved.f32.assign(layout.operands_begin(), 7.0f);
  halved.bf16.assign(layout.bf16_size(), to_bfloat16(7.0f));
  EXPECT_LT(halved.f32.size(), whole.f32.size());
  const LoadOptions options = {.adapter = adapter_dir(), .bf16_copy = halved.bf16};
  load_pretrained(base_dir(), adapted_config_, layout, halved.f32, options);
  const auto end = whole.f32.begin() + static_cast<std::ptrdiff_t>(halved.f32.size());
  EXPECT_TRUE(std::equal(whole.f32.begin(), end, halved.f32.begin()));
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (parameter.offset < layout.operands_begin()) continue;
    for (std::size_t i = parameter.offset; i < parameter.end(); ++i)
      ASSERT_EQ(halved.bf16[i], whole.bf16[i]) << parameter.name;
  }
  // Adapters are rounded by the optimizer.
  std::ranges::transform(halved.f32.begin(),
                         halved.f32.begin() + static_cast<std::ptrdiff_t>(layout.trained_size()),
                         halved.bf16.begin(), to_bfloat16);
  testing::TestContext context;
  const nn::PackedBatch batch = testing::tiny_batch(false);
  EXPECT_EQ(infer(context, halved, nn::Precision::kBfloat16, batch),
            infer(context, whole, nn::Precision::kBfloat16, batch));
  halved.f32.pop_back();
  EXPECT_THROW(load_pretrained(base_dir(), adapted_config_, layout, halved.f32, options),
               InvalidArgument);
}

// The merged model and the model with its adapter compute the same function.
TEST_F(AdapterFilesTest, MergeIntoTheFunctionOfTheAdapter) {
  const testing::TestModel trained = save_trained();
  testing::TestModel merged(config_, 9, two_labels);
  load_pretrained(base_dir(), config_, merged.model.layout(), merged.f32,
                  {.adapter = adapter_dir()});
  testing::TestContext context;
  const nn::PackedBatch batch = testing::tiny_batch(false);
  const std::vector<float> want = infer(context, trained, nn::Precision::kFloat32, batch);
  const std::vector<float> got = infer(context, merged, nn::Precision::kFloat32, batch);
  testing::TestModel base(config_, 9, two_labels);
  load_pretrained(base_dir(), config_, base.model.layout(), base.f32);
  const std::vector<float> without = infer(context, base, nn::Precision::kFloat32, batch);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 2e-6);
    EXPECT_GT(std::abs(without[i] - want[i]), 1e-3);
  }
  // The merged file has the same weights, to the bit.
  write_merged_model({.base = base_dir(), .adapter = adapter_dir(), .config = adapter_dir()},
                     merged_dir());
  testing::TestModel read(config_, 11, two_labels);
  load_pretrained(merged_dir(), config_, read.model.layout(), read.f32);
  EXPECT_EQ(read.f32, merged.f32);
  EXPECT_FALSE(is_adapter_directory(merged_dir()));
}

TEST_F(AdapterFilesTest, MergedHeadOfABareEncoderGetsTheNamesOfTheClass) {
  save_trained();
  const fs::path bare = made(directory_.path() / "bare");
  const testing::TestModel base(config_, 3, two_labels);
  save_bare_encoder(bare, config_, "BertModel", base.model.layout(), base.f32, {});
  write_merged_model({.base = bare, .adapter = adapter_dir(), .config = adapter_dir()},
                     merged_dir());
  const formats::SafetensorsFile file(merged_dir() / "model.safetensors");
  EXPECT_NE(file.find("bert.embeddings.word_embeddings.weight"), nullptr);
  EXPECT_NE(file.find("classifier.weight"), nullptr);
  EXPECT_EQ(file.find("embeddings.word_embeddings.weight"), nullptr);
}

TEST_F(AdapterFilesTest, BareAdaptersHaveNoPrefix) {
  testing::TestModel trained(adapted_config_, 5, two_labels);
  save_bare_encoder(adapter_dir(), adapted_config_, "BertModel", trained.model.layout(),
                    trained.f32, {});
  const formats::SafetensorsFile file(adapter_dir() / "adapter_model.safetensors");
  EXPECT_NE(file.find("base_model.model.encoder.layer.0.attention.self.query.lora_A.weight"),
            nullptr);
  testing::TestModel again(adapted_config_, 9, two_labels);
  load_adapter(adapter_dir(), adapted_config_, again.model.layout(), again.f32);
  const std::size_t trained_size = trained.model.layout().trained_size();
  EXPECT_TRUE(std::equal(again.f32.begin(), again.f32.begin() + trained_size, trained.f32.begin()));
}

TEST_F(AdapterFilesTest, NameWhatDoesNotFit) {
  save_trained();
  testing::TestModel other(config_, 9, two_labels);
  const auto merge = [&] {
    merge_adapter(adapter_dir(), config_, other.model.layout(), other.f32);
  };
  // Another rank than the file's.
  std::string config = read_file(adapter_dir() / "adapter_config.json");
  config.replace(config.find("\"r\": 4"), 6, "\"r\": 5");
  write_file(adapter_dir() / "adapter_config.json", config);
  EXPECT_THAT(merge, ThrowsMessage<DataError>(HasSubstr("query.lora_A.weight' is F32 [4, 32]")));
  fs::remove(adapter_dir() / "adapter_model.safetensors");
  EXPECT_THAT(merge, ThrowsMessage<DataError>(HasSubstr("expected adapter_model.safetensors")));
}

// A frozen parameter that the file of the base lacks would be random, and not in the adapter.
TEST_F(AdapterFilesTest, RefuseABaseWithoutAFrozenParameter) {
  const fs::path headless = made(directory_.path() / "headless");
  const testing::TestModel base(config_, 3, two_labels);
  save_bare_encoder(headless, config_, "BertModel", base.model.layout(), base.f32, {});
  formats::SafetensorsFile file(headless / "model.safetensors");
  testing::TestModel trained(adapted_config_, 5, two_labels);
  std::vector<formats::TensorView> kept;
  for (const formats::TensorView& tensor : file.tensors())
    if (!tensor.name.starts_with("pooler")) kept.push_back(tensor);
  const fs::path lacking = made(directory_.path() / "lacking");
  formats::write_safetensors(lacking / "model.safetensors", kept);
  EXPECT_THAT(
      [&] { load_pretrained(lacking, adapted_config_, trained.model.layout(), trained.f32); },
      ThrowsMessage<ConfigError>(HasSubstr("bert.pooler.dense")));
  // With the names of its tensors known, it is trained whole.
  LoraConfig lora = *adapted_config_.lora;
  lora.base_tensors = parameter_names(lacking, config_);
  ModelConfig knowing = config_;
  knowing.lora = std::make_shared<const LoraConfig>(lora);
  testing::TestModel whole(knowing, 5, two_labels);
  load_pretrained(lacking, knowing, whole.model.layout(), whole.f32);
  EXPECT_TRUE(whole.model.layout().find("bert.pooler.dense.weight")->trainable);
}

// The first values that torch 2.15 draws for these shapes after manual_seed(42):
//   a = nn.Linear(32, 4, bias=False); b = nn.Linear(4, 32, bias=False)
//   nn.init.kaiming_uniform_(a.weight, a=math.sqrt(5))
TEST_F(AdapterFilesTest, StartAsPeftDrawsThem) {
  testing::TestModel model(adapted_config_, 9, two_labels);
  TorchGenerator generator(42);
  draw_adapters(*adapted_config_.lora, adapted_config_, model.model.layout(), model.f32, generator);
  const nn::ParameterSpec* down =
      model.model.layout().find("bert.encoder.layer.0.attention.self.query.lora_A.weight");
  const std::vector<float> expected = {0.09890495240688324f, -0.12307273596525192f,
                                       0.08885109424591064f, 0.08021847158670425f,
                                       0.1262950450181961f,  -0.13559693098068237f};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(model.f32[down->offset + i], expected[i]) << i;
  for (const nn::ParameterSpec& parameter : model.model.layout().parameters()) {
    if (parameter.kind != nn::ParameterKind::kLowRankUp) continue;
    for (std::size_t i = 0; i < parameter.size; ++i)
      ASSERT_EQ(model.f32[parameter.offset + i], 0.0f);
  }
}

}  // namespace
}  // namespace tandem::models
