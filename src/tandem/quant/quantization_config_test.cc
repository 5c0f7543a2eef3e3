#include "tandem/quant/quantization_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/models/test_models.h"

namespace tandem::quant {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kArchitecture = "BertForQuestionAnswering";

json written(bool dynamic) {
  const auto config = models::testing::tiny_config(models::kBert);
  return json::parse(
      config_json(config, kArchitecture, {.dynamic = dynamic, .ignore = {"qa_outputs"}}));
}

std::optional<QuantizationConfig> read(const json& config) {
  return quantization_of(models::ModelConfig::parse(config.dump(), "c.json"), "c.json");
}

TEST(QuantizationConfig, WhatIsWrittenIsRead) {
  for (const bool dynamic : {false, true}) {
    const auto quantization = read(written(dynamic));
    ASSERT_TRUE(quantization);
    EXPECT_EQ(quantization->dynamic, dynamic);
    EXPECT_FALSE(quantization->symmetric_inputs);
    EXPECT_THAT(quantization->ignore, ElementsAre("qa_outputs"));
  }
}

TEST(QuantizationConfig, HasTheKeysOfCompressedTensors) {
  const json config = written(false);
  EXPECT_EQ(config.at("hidden_size"), 32);  // the rest of config.json is there
  const json& section = config.at("quantization_config");
  EXPECT_EQ(section.at("quant_method"), "compressed-tensors");
  EXPECT_EQ(section.at("format"), "int-quantized");
  EXPECT_EQ(section.at("quantization_status"), "compressed");
  const json& group = section.at("config_groups").at("group_0");
  EXPECT_EQ(group.at("targets"), json::array({"Linear"}));
  EXPECT_EQ(group.at("weights").at("strategy"), "channel");
  EXPECT_EQ(group.at("weights").at("symmetric"), true);
  EXPECT_EQ(group.at("input_activations").at("strategy"), "tensor");
  EXPECT_EQ(group.at("input_activations").at("symmetric"), false);
  EXPECT_EQ(written(true).at(
                "quantization_config")["config_groups"]["group_0"]["input_activations"]["strategy"],
            "token");
}

TEST(QuantizationConfig, AnOrdinaryModelHasNone) {
  json config = written(false);
  config.erase("quantization_config");
  EXPECT_FALSE(read(config));
  config["quantization_config"] = nullptr;
  EXPECT_FALSE(read(config));
}

// Changes one value of a good section and expects a message that names it.
void expect_refused(const std::string& pointer, const json& value, const std::string& needle) {
  SCOPED_TRACE(pointer + " = " + value.dump());
  json config = written(false);
  config["quantization_config"][json::json_pointer(pointer)] = value;
  try {
    read(config);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("c.json"));
    EXPECT_THAT(error.what(), HasSubstr(needle));
  }
}

TEST(QuantizationConfig, OtherQuantizationsAreRefused) {
  const std::string group = "/config_groups/group_0";
  expect_refused("/quant_method", "gptq", "quant_method is \"gptq\"");
  expect_refused("/format", "pack-quantized", "pack-quantized");
  expect_refused("/quantization_status", "frozen", "frozen");
  expect_refused("/kv_cache_scheme", {{"num_bits", 8}}, "kv_cache_scheme");
  expect_refused("/config_groups", json::object(), "one group");
  expect_refused("/config_groups", 3, "an object");
  expect_refused("/config_groups/group_1", {{"targets", {"Linear"}}}, "one group");
  expect_refused(group + "/targets", {"re:.*query"}, "targets");
  expect_refused(group + "/weights", nullptr, "group_0.weights");
  expect_refused(group + "/weights/num_bits", 4, "num_bits is 4");
  expect_refused(group + "/weights/type", "float", "float");
  expect_refused(group + "/weights/symmetric", false, "symmetric");
  expect_refused(group + "/weights/strategy", "group", "strategy");
  expect_refused(group + "/weights/group_size", 128, "group_size");
  expect_refused(group + "/input_activations", nullptr, "input_activations");
  expect_refused(group + "/input_activations/dynamic", "local", "dynamic");
  expect_refused(group + "/input_activations/strategy", "token", "strategy");
  expect_refused(group + "/output_activations", {{"num_bits", 8}}, "output_activations");
  expect_refused("/ignore", "qa_outputs", "ignore");
  expect_refused("/ignore", {1}, "ignore");
  json config = written(false);
  config["quantization_config"] = "int8";
  EXPECT_THROW(read(config), ConfigError);
}

}  // namespace
}  // namespace tandem::quant
