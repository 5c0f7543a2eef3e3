#include "tandem/models/encoder/lora_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/encoder/lora.h"
#include "tandem/models/heads/causal_language_head.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

// As PEFT 0.21.2 writes it for a LoraConfig with these values.
constexpr const char* kWrittenByPeft = R"({
  "alora_invocation_tokens": null,
  "alpha_pattern": {},
  "arrow_config": null,
  "auto_mapping": null,
  "base_model_name_or_path": "bert-base-uncased",
  "bias": "none",
  "corda_config": null,
  "ensure_weight_tying": false,
  "eva_config": null,
  "exclude_modules": null,
  "fan_in_fan_out": false,
  "inference_mode": true,
  "init_lora_weights": true,
  "kasa_config": null,
  "layer_replication": null,
  "layers_pattern": null,
  "layers_to_transform": null,
  "loftq_config": {},
  "lora_alpha": 16,
  "lora_bias": false,
  "lora_dropout": 0.05,
  "lora_ga_config": null,
  "megatron_config": null,
  "megatron_core": "megatron.core",
  "modules_to_save": [
    "classifier",
    "score"
  ],
  "monteclora_config": null,
  "peft_type": "LORA",
  "peft_version": "0.21.2",
  "qalora_group_size": 16,
  "r": 8,
  "rank_pattern": {},
  "revision": null,
  "target_modules": [
    "query",
    "value"
  ],
  "target_parameters": null,
  "task_type": "SEQ_CLS",
  "trainable_token_indices": null,
  "use_bdlora": null,
  "use_dora": false,
  "use_qalora": false,
  "use_rslora": false,
  "velora_config": null
})";

TEST(LoraConfig, WritesTheBytesOfPeft) {
  const LoraConfig config = LoraConfig::parse(kWrittenByPeft, "a.json");
  EXPECT_EQ(adapter_config_json(config, {.task_type = "SEQ_CLS",
                                         .target_modules = config.target_modules.names,
                                         .modules_to_save = config.modules_to_save}),
            kWrittenByPeft);
}

TEST(LoraConfig, ReadsEveryFieldThatItComputesWith) {
  const LoraConfig config = LoraConfig::parse(
      R"({"peft_type": "LORA", "r": 4, "lora_alpha": 2.5, "lora_dropout": 0.1, "use_rslora": true,
          "init_lora_weights": "gaussian", "target_modules": ".*query|.*key",
          "exclude_modules": ["0.query"], "modules_to_save": ["classifier"],
          "rank_pattern": {"value": 2}, "alpha_pattern": {"key": 3}, "layers_to_transform": 1,
          "layers_pattern": "layer", "base_model_name_or_path": "base", "revision": "v1"})",
      "a.json");
  EXPECT_EQ(config.r, 4u);
  EXPECT_EQ(config.lora_alpha, 2.5);
  EXPECT_EQ(config.lora_dropout, 0.1);
  EXPECT_TRUE(config.use_rslora);
  EXPECT_TRUE(config.gaussian_init);
  EXPECT_EQ(config.target_modules.pattern, ".*query|.*key");
  EXPECT_THAT(config.exclude_modules.names, ElementsAre("0.query"));
  EXPECT_THAT(config.modules_to_save, ElementsAre("classifier"));
  EXPECT_EQ(lora_rank(config, "a.value"), 2u);
  EXPECT_EQ(lora_rank(config, "a.query"), 4u);
  EXPECT_DOUBLE_EQ(lora_scale(config, "a.key"), 3 / 2.0);
  EXPECT_DOUBLE_EQ(lora_scale(config, "a.query"), 2.5 / 2.0);
  EXPECT_THAT(config.layers_to_transform, ElementsAre(1u));
  EXPECT_THAT(config.layers_pattern, ElementsAre("layer"));
  EXPECT_EQ(config.base_model_name_or_path, "base");
  EXPECT_EQ(config.revision, "v1");
}

TEST(LoraConfig, NamesWhatItRefuses) {
  const auto refusal = [](std::string_view values) {
    return [text = "{\"peft_type\": \"LORA\", " + std::string(values) + "}"] {
      LoraConfig::parse(text, "a.json");
    };
  };
  const auto names = [](const char* key) { return ThrowsMessage<ConfigError>(HasSubstr(key)); };
  EXPECT_THAT(refusal(R"("use_dora": true)"), names("use_dora is true"));
  EXPECT_THAT(refusal(R"("bias": "all")"), names("bias"));
  EXPECT_THAT(refusal(R"("init_lora_weights": "pissa")"), names("init_lora_weights"));
  EXPECT_THAT(refusal(R"("target_parameters": ["w"])"), names("target_parameters"));
  EXPECT_THAT(refusal(R"("trainable_token_indices": [1])"), names("trainable_token_indices"));
  EXPECT_THAT(refusal(R"("loftq_config": {"bits": 4})"), names("loftq_config"));
  EXPECT_THAT(refusal(R"("fan_in_fan_out": 1)"), names("fan_in_fan_out is 1"));
  EXPECT_THAT(refusal(R"("r": 0)"), names("lora_r is 0"));
  EXPECT_THAT(refusal(R"("r": -2)"), names("r is -2"));
  EXPECT_THAT(refusal(R"("lora_dropout": 1)"), names("lora_dropout"));
  EXPECT_THAT(refusal(R"("modules_to_save": 3)"), names("modules_to_save"));
  EXPECT_THAT([] { LoraConfig::parse(R"({"peft_type": "LOHA"})", "a.json"); }, names("LOHA"));
  EXPECT_THAT([] { LoraConfig::parse("[", "a.json"); }, names("a.json"));
}

TEST(LoraConfig, TakesOneFlagValueAsNameOrPattern) {
  EXPECT_THAT(ModuleNames::parse({"query"}).names, ElementsAre("query"));
  EXPECT_THAT(ModuleNames::parse({"query", "value"}).names, ElementsAre("query", "value"));
  EXPECT_EQ(ModuleNames::parse({".*query"}).pattern, ".*query");
  EXPECT_TRUE(ModuleNames::parse({"all-linear"}).all_linear);
  EXPECT_TRUE(ModuleNames::parse({}).empty());
}

// --- the modules of a model ---

std::unique_ptr<Head> two_label_head(const ModelConfig& config, nn::ParameterLayout& layout) {
  return make_sequence_head(2, config, layout);
}

ModelConfig with(const Family& family, LoraConfig lora) {
  ModelConfig config = testing::tiny_config(family);
  config.lora = std::make_shared<const LoraConfig>(std::move(lora));
  return config;
}

// The modules with adapters, shortened by the encoder's prefix, and the parameters trained whole.
struct Trained {
  std::set<std::string> adapted, whole;
};

Trained trained_of(const Family& family, LoraConfig lora) {
  const EncoderModel model(with(family, std::move(lora)), two_label_head);
  Trained trained;
  for (const nn::ParameterSpec& parameter : model.layout().parameters()) {
    if (!parameter.trainable || parameter.kind == nn::ParameterKind::kLowRankUp) continue;
    std::string name = parameter.name;
    if (parameter.kind == nn::ParameterKind::kLowRankDown)
      trained.adapted.insert(name.substr(0, name.find(".lora_A")));
    else
      trained.whole.insert(name);
  }
  return trained;
}

TEST(LoraParts, AdaptsQueriesAndValuesByDefault) {
  for (const Family* family : families()) {
    LoraConfig lora;
    lora.modules_to_save = {"classifier", "score"};
    const Trained trained = trained_of(*family, lora);
    const std::size_t of_layer = family == &kModernBert ? 1 : 2;
    EXPECT_EQ(trained.adapted.size(), 2 * of_layer) << family->model_type;
    EXPECT_TRUE(trained.whole.contains("classifier.weight") ||
                trained.whole.contains("classifier.out_proj.weight"))
        << family->model_type;
  }
  EXPECT_THAT(trained_of(kBert, {}).adapted,
              ElementsAre("bert.encoder.layer.0.attention.self.query",
                          "bert.encoder.layer.0.attention.self.value",
                          "bert.encoder.layer.1.attention.self.query",
                          "bert.encoder.layer.1.attention.self.value"));
}

// PEFT compares the ends of names: "pre_classifier" ends with "classifier".
TEST(LoraParts, TrainsModulesWholeWhoseNamesEndSo) {
  LoraConfig lora;
  lora.modules_to_save = {"classifier"};
  EXPECT_THAT(trained_of(kDistilBert, lora).whole,
              ElementsAre("classifier.bias", "classifier.weight", "pre_classifier.bias",
                          "pre_classifier.weight"));
  EXPECT_THAT(trained_of(kRoberta, lora).whole,
              ElementsAre("classifier.dense.bias", "classifier.dense.weight",
                          "classifier.out_proj.bias", "classifier.out_proj.weight"));
}

TEST(LoraParts, MatchesNamesPatternsAndLayers) {
  LoraConfig lora;
  lora.target_modules.all_linear = true;
  lora.modules_to_save = {"classifier"};
  // Six in each layer, and the pooler.
  EXPECT_EQ(trained_of(kBert, lora).adapted.size(), 13u);
  lora.exclude_modules.names = {"pooler.dense", "query"};
  EXPECT_EQ(trained_of(kBert, lora).adapted.size(), 10u);

  lora = {};
  lora.target_modules.pattern = R"(.*\.1\..*\.(key|value))";
  EXPECT_THAT(trained_of(kBert, lora).adapted,
              ElementsAre("bert.encoder.layer.1.attention.self.key",
                          "bert.encoder.layer.1.attention.self.value"));
  lora = {};
  lora.target_modules.names = {"attention.output.dense"};
  lora.layers_to_transform = {0};
  EXPECT_THAT(trained_of(kBert, lora).adapted,
              ElementsAre("bert.encoder.layer.0.attention.output.dense"));
}

TEST(LoraParts, TrainsWhatTheBaseModelLacks) {
  LoraConfig lora;
  lora.base_tensors.emplace();
  const EncoderModel whole(testing::tiny_config(kBert), two_label_head);
  for (const nn::ParameterSpec& parameter : whole.layout().parameters())
    if (!parameter.name.starts_with("classifier")) lora.base_tensors->insert(parameter.name);
  EXPECT_THAT(trained_of(kBert, lora).whole, ElementsAre("classifier.bias", "classifier.weight"));
}

TEST(LoraParts, NamesTheModulesThatThereAre) {
  LoraConfig lora;
  lora.target_modules.names = {"q_proj"};
  EXPECT_THAT([&] { trained_of(kBert, lora); },
              ThrowsMessage<ConfigError>(
                  ::testing::AllOf(HasSubstr("target_modules is q_proj"),
                                   HasSubstr("bert.encoder.layer.0.attention.self.query"))));
  lora.target_modules.names.clear();
  lora.target_modules.pattern = "(";
  EXPECT_THAT([&] { trained_of(kBert, lora); },
              ThrowsMessage<ConfigError>(HasSubstr("regular expression")));
}

// The frozen base has no gradients, so backward ends at the lowest adapter.
TEST(LoraParts, LayersBelowTheLowestAdapterHaveNoBackward) {
  LoraConfig lora;
  lora.layers_to_transform = {1};
  const EncoderModel model(with(kBert, lora), testing::make_head);
  EXPECT_LT(model.layout().trained_size(), model.layout().size());
  const EncoderModel whole(testing::tiny_config(kBert), testing::make_head);
  EXPECT_LT(model.training_flops(8, 8), whole.training_flops(8, 8));
}

// The layer below the adapters has the forward pass alone. The adapters of query and value are
// three products of their matrices.
TEST(LoraParts, OperationsEndWhereBackwardEnds) {
  constexpr std::size_t kRows = 8;
  const auto flops = [](const std::vector<std::size_t>& layers) {
    LoraConfig lora;
    lora.layers_to_transform = layers;
    return EncoderModel(with(kBert, lora), testing::make_head).training_flops(kRows, kRows);
  };
  const EncoderModel whole(testing::tiny_config(kBert), testing::make_head);
  double attention = 0, others = 0;  // multiply-adds of a layer's forward pass
  whole.count_products(kRows, kRows, [&](std::string_view stage, double number) {
    (stage == "attention" ? attention : others) += number / 2;
  });
  const double H = static_cast<double>(whole.config().hidden_size);
  const double adapters = 3 * kRows * static_cast<double>(LoraConfig().r) * 2 * (H + H);
  EXPECT_NEAR(flops({0, 1}) - flops({1}), 2 * (2 * attention + others + adapters), 1e-3);
}

// Forward and the gradient of its input remain of the three products of the output layer.
TEST(LoraParts, AFrozenOutputMatrixCountsTwoProducts) {
  const EncoderModel frozen(with(kLlama, {}), make_causal_language_head);
  const EncoderModel whole(testing::tiny_config(kLlama), make_causal_language_head);
  const auto flops = [](const EncoderModel& model) {
    return CausalLanguageHead(model.config(), model.layout()).training_flops(7);
  };
  EXPECT_DOUBLE_EQ(3 * flops(frozen), 2 * flops(whole));
}

}  // namespace
}  // namespace tandem::models
