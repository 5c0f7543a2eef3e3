#include "tandem/quant/int8_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/test_models.h"
#include "tandem/quant/quantization_config.h"

namespace tandem::quant {
namespace {

namespace fs = std::filesystem;
using formats::DType;
using formats::TensorView;
using models::ModelConfig;
using models::testing::TestContext;
using models::testing::TestModel;
using nlohmann::json;
using tandem::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Owned {
  DType dtype;
  std::vector<std::size_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Owned>;

Tensors read_tensors(const fs::path& directory) {
  const formats::SafetensorsFile file(directory / "model.safetensors");
  Tensors tensors;
  for (const TensorView& view : file.tensors()) {
    tensors[view.name] = {view.dtype,
                          view.shape,
                          {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()}};
  }
  return tensors;
}

void write_tensors(const fs::path& directory, const Tensors& tensors) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    views.push_back({name, tensor.dtype, tensor.shape,
                     std::as_bytes(std::span(tensor.bytes.data(), tensor.bytes.size()))});
  }
  formats::write_safetensors(directory / "model.safetensors", views);
}

// A tiny model with made-up input ranges, and where it is saved.
class Int8Files : public ::testing::TestWithParam<const models::Family*> {
 protected:
  Int8Files() : model_(models::testing::tiny_config(*GetParam())) {
    layers_ = linear_layers(model_.model.layout());
    CalibratedRanges ranges;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto n = static_cast<float>(i);
      ranges.least_error.push_back(kernels::int8_range(-1 - n, 2));
      ranges.min_max.push_back(kernels::int8_range(-4, 4 + n));
    }
    ranges_ = ranges;
  }
  std::vector<QuantizedLinear> quantized(const Configuration& configuration) const {
    return quantize(layers_, model_.f32, ranges_, configuration);
  }
  void save(std::span<const QuantizedLinear> linears) const {
    save_int8(folder_.path(), model_.model.config(), model_.model.architecture(),
              model_.model.layout(), model_.f32, linears);
  }
  std::vector<QuantizedLinear> load() const {
    const ModelConfig config = ModelConfig::load(folder_.path());
    const auto quantization = quantization_of(config, (folder_.path() / "config.json").string());
    return load_linears(folder_.path(), config, quantization.value(), model_.model.layout());
  }
  std::vector<float> logits(const nn::Weights& weights) {
    TestContext context;
    const nn::PackedBatch batch = models::testing::tiny_batch(false);
    models::Activations activations =
        model_.model.make_activations({batch.rows(), batch.num_sequences()},
                                      nn::Precision::kFloat32, models::PassKind::kInference);
    std::vector<float> logits(batch.rows() * 2);
    model_.model.forward(context, weights, batch, {}, activations, logits);
    return logits;
  }
  bool is_modern() const { return models::testing::pre_norm_names(*GetParam()) != nullptr; }
  std::string prefix() const {
    const std::string query = this->query();
    return query.substr(0, query.find(".0.") + 1);
  }
  // The module of queries, or of queries, keys and values.
  std::string query() const {
    const std::string weight = models::testing::linear_weights(*GetParam(), 0).front();
    return weight.substr(0, weight.size() - std::string_view(".weight").size());
  }
  std::size_t query_rows() const { return is_modern() ? 96 : 32; }
  std::string head() const { return models::testing::output_layer(*GetParam(), "qa_outputs"); }
  // Saves a good model, changes its tensors, and expects load() to name the fault.
  void expect_broken(const std::function<void(Tensors&)>& change,
                     const std::vector<std::string>& needles) {
    save(quantized({}));
    Tensors tensors = read_tensors(folder_.path());
    change(tensors);
    write_tensors(folder_.path(), tensors);
    try {
      load();
      FAIL() << "no error; expected " << needles.front();
    } catch (const DataError& error) {
      for (const auto& needle : needles) EXPECT_THAT(error.what(), HasSubstr(needle));
      EXPECT_THAT(error.what(), HasSubstr("model.safetensors"));
    }
  }

  TemporaryFolder folder_;
  TestModel model_;
  std::vector<LinearLayer> layers_;
  CalibratedRanges ranges_;
};

TEST_P(Int8Files, LayersAreTheEncodersProductsFromTheLast) {
  ASSERT_EQ(layers_.size(), 8u);
  EXPECT_THAT(blocks_of(layers_), ElementsAre(prefix() + "1", prefix() + "0"));
  const LinearLayer& qkv = layers_.back();
  ASSERT_EQ(qkv.modules.size(), is_modern() ? 1u : 3u);
  EXPECT_EQ(qkv.modules.front().name, query());
  EXPECT_EQ(qkv.linear.out_features, 96u);
  EXPECT_EQ(qkv.linear.in_features, 32u);
  EXPECT_EQ(qkv.linear.weight, model_.model.layout().find(query() + ".weight")->offset);
  EXPECT_EQ(layers_.front().linear.in_features, 48u);  // the feed-forward part's second product
  EXPECT_EQ(layers_.front().modules.size(), 1u);
}

TEST_P(Int8Files, HasTheTensorsOfCompressedTensors) {
  const auto linears = quantized({});
  save(linears);
  const Tensors tensors = read_tensors(folder_.path());
  const Owned& weight = tensors.at(query() + ".weight");
  EXPECT_EQ(weight.dtype, DType::kI8);
  EXPECT_THAT(weight.shape, ElementsAre(query_rows(), 32));
  const Owned& scale = tensors.at(query() + ".weight_scale");
  EXPECT_EQ(scale.dtype, DType::kF32);
  EXPECT_THAT(scale.shape, ElementsAre(query_rows(), 1));
  const Owned& input_scale = tensors.at(query() + ".input_scale");
  EXPECT_EQ(input_scale.dtype, DType::kF32);
  EXPECT_THAT(input_scale.shape, ElementsAre(1));
  float value = 0;
  std::memcpy(&value, input_scale.bytes.data(), sizeof value);
  EXPECT_EQ(value, linears.back().input->scale);
  const Owned& zero_point = tensors.at(query() + ".input_zero_point");
  EXPECT_EQ(zero_point.dtype, DType::kI8);
  EXPECT_THAT(zero_point.shape, ElementsAre(1));
  EXPECT_EQ(static_cast<std::int8_t>(zero_point.bytes[0]), linears.back().input->zero_point - 128);
  EXPECT_EQ(tensors.contains(query() + ".bias"), !is_modern());
  EXPECT_EQ(tensors.at(head() + ".weight").dtype, DType::kF32);
  EXPECT_FALSE(tensors.contains(head() + ".weight_scale"));
  std::size_t int8 = 0;
  for (const auto& [name, tensor] : tensors) {
    int8 += name.ends_with(".weight") && tensor.dtype == DType::kI8 ? 1 : 0;
  }
  EXPECT_EQ(int8, is_modern() ? 8u : 12u);  // four or six modules in each of two layers
}

TEST_P(Int8Files, WhatIsWrittenIsReadToTheLastBit) {
  for (const InputRanges kind :
       {InputRanges::kLeastError, InputRanges::kMinMax, InputRanges::kDynamic}) {
    SCOPED_TRACE(to_string(kind));
    const auto linears = quantized({.ranges = kind, .f32_blocks = {}});
    save(linears);
    EXPECT_EQ(load(), linears);
  }
}

TEST_P(Int8Files, LogitsOfTheLoadedModelAreThoseOfTheSavedOne) {
  const auto linears = quantized({.ranges = InputRanges::kMinMax, .f32_blocks = {prefix() + "1"}});
  ASSERT_EQ(linears.size(), 4u);
  save(linears);
  const ModelConfig config = ModelConfig::load(folder_.path());
  // The modules of a layer, those of the head and a projection.
  const std::size_t ignored = is_modern() ? 6 : config.has_projection() ? 8 : 7;
  EXPECT_THAT(quantization_of(config, "")->ignore,
              AllOf(::testing::Contains(head()), ::testing::SizeIs(ignored)));
  std::vector<float> weights(model_.f32.size());
  const auto loaded = load();
  const auto report =
      load_other_weights(folder_.path(), config, model_.model.layout(), loaded, weights, {});
  EXPECT_THAT(report.newly_initialized, ::testing::IsEmpty());
  EXPECT_THAT(report.unused, ::testing::IsEmpty());
  TestContext context;
  const nn::Int8Linears before = pack(context, linears), after = pack(context, loaded);
  const std::vector<float> expected = logits({.f32 = model_.f32, .bf16 = {}, .int8 = &before});
  EXPECT_EQ(logits({.f32 = weights, .bf16 = {}, .int8 = &after}), expected);
  // And int8 it is: f32 gives something else, near by.
  const std::vector<float> f32 = logits({.f32 = model_.f32, .bf16 = {}});
  EXPECT_NE(f32, expected);
  // The arena holds what the int8 weights stand for.
  std::vector<float> back(linears.front().weight.values.size());
  dequantize(linears.front().weight, back);
  EXPECT_TRUE(std::equal(
      back.begin(), back.end(),
      weights.begin() + static_cast<std::ptrdiff_t>(linears.front().layer.linear.weight)));
}

TEST_P(Int8Files, WithoutTheBasePrefixAndInOtherFloats) {
  const auto linears = quantized({});
  save(linears);
  Tensors renamed;
  const std::string_view base = GetParam()->base_prefix;
  for (auto& [name, tensor] : read_tensors(folder_.path())) {
    renamed[name.starts_with(base) ? name.substr(base.size()) : name] = tensor;
  }
  write_tensors(folder_.path(), renamed);
  EXPECT_EQ(load(), linears);
}

TEST_P(Int8Files, ErrorsOfBrokenFilesNameTheFault) {
  const std::string q = query();
  const auto set_float = [](Owned& tensor, float value) {
    std::memcpy(tensor.bytes.data(), &value, sizeof value);
  };
  expect_broken([&](Tensors& t) { t.erase(q + ".weight_scale"); },
                {q + ".weight_scale' is missing", fmt::format("[{}, 1]", query_rows())});
  expect_broken([&](Tensors& t) { t.erase(q + ".input_scale"); }, {"input_scale' is missing"});
  expect_broken([&](Tensors& t) { t.erase(q + ".input_zero_point"); },
                {"input_zero_point' is missing"});
  expect_broken([&](Tensors& t) { t[q + ".weight_scale"].shape = {query_rows()}; },
                {fmt::format("weight_scale' is [{}]", query_rows()),
                 fmt::format("expected [{}, 1]", query_rows())});
  expect_broken([&](Tensors& t) { set_float(t[q + ".weight_scale"], -1); },
                {"weight_scale' is -1", "positive"});
  expect_broken([&](Tensors& t) { set_float(t[q + ".input_scale"], NAN); },
                {"input_scale' is nan", "positive"});
  expect_broken([&](Tensors& t) { t[q + ".input_scale"].dtype = DType::kI32; },
                {"input_scale' is I32", "F32"});
  expect_broken([&](Tensors& t) { t[q + ".input_zero_point"].dtype = DType::kU8; },
                {"input_zero_point' is U8", "I8"});
  expect_broken(
      [&](Tensors& t) {
        t[q + ".weight"].shape = {query_rows() / 2, 64};
      },
      {fmt::format("weight' is [{}, 64]", query_rows() / 2),
       fmt::format("[{}, 32]", query_rows())});
  if (!is_modern()) {  // whose layer is one module
    expect_broken([&](Tensors& t) { set_float(t[q + ".input_scale"], 0.5f); },
                  {"the input ranges of", "differ"});
    expect_broken(
        [&](Tensors& t) {
          t[q + ".weight"] = {DType::kF32, {32, 32}, std::string(4096, '\0')};
        },
        {"2 of the 3 modules", "all or none"});
  }
  expect_broken(
      [&](Tensors& t) {
        t[q + ".weight_zero_point"] = {
            DType::kI8, {query_rows(), 1}, std::string(query_rows(), '\1')};
      },
      {"weight_zero_point' is not 0"});
  expect_broken(
      [&](Tensors& t) {
        t[head() + ".weight"] = {DType::kI8, {2, 32}, std::string(64, '\1')};
      },
      {head() + ".weight' is I8", "encoder"});
  expect_broken(
      [&](Tensors& t) {
        for (auto& [name, tensor] : t) {
          if (tensor.dtype != DType::kI8 || !name.ends_with(".weight")) continue;
          tensor = {DType::kF32, tensor.shape, std::string(4 * tensor.bytes.size(), '\0')};
        }
      },
      {"no linear layer's weight is I8"});
}

TEST_P(Int8Files, AnIgnoredModuleMustNotBeInt8) {
  save(quantized({}));
  json config = json::parse(read_file(folder_ / "config.json"));
  config["quantization_config"]["ignore"].push_back(query());
  write_file(folder_ / "config.json", config.dump());
  try {
    load();
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(query()), HasSubstr("ignore")));
  }
}

TEST_P(Int8Files, EqualModelsWriteEqualBytes) {
  save(quantized({}));
  const std::string first = read_file(folder_ / "model.safetensors");
  const std::string config = read_file(folder_ / "config.json");
  save(load());
  EXPECT_TRUE(read_file(folder_ / "model.safetensors") == first);
  EXPECT_EQ(read_file(folder_ / "config.json"), config);
}

TEST_P(Int8Files, WeightsThatAreNotFiniteNameTheLayer) {
  model_.f32[layers_.back().linear.weight] = NAN;
  try {
    quantized({});
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(query()));
  }
}

TEST(LinearLayers, RefuseATransposedWeight) {
  nn::ParameterLayout layout;
  layout.add_transposed_linear("qkv", "transformer.h.0.attn.c_attn", 24, 8);
  EXPECT_THROW(linear_layers(layout), ConfigError);
}

INSTANTIATE_TEST_SUITE_P(Families, Int8Files,
                         ::testing::ValuesIn(models::families().begin(), models::families().end()),
                         [](const auto& family) {
                           return std::string(family.param->class_prefix);
                         });

}  // namespace
}  // namespace tandem::quant
