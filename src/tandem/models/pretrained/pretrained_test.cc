#include "tandem/models/pretrained/pretrained.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "support/test_support.h"
#include "tandem/core/bfloat16.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/torch_file.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::TestModel;
using models::testing::tiny_config;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAreArray;

// A tensor of a file to be written, with its bytes.
struct OwnedTensor {
  std::string name;
  formats::DType dtype;
  std::vector<std::size_t> shape;
  std::vector<std::byte> bytes;
};

// Values that fit bf16 and f16 exactly, so that every dtype stores them as they are.
std::vector<float> exact_values(std::size_t size, std::size_t seed) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i)
    values[i] = static_cast<float>((i * 5 + seed) % 127) / 64 - 1;
  return values;
}

std::uint16_t half_bits(float value) {  // f16 bits of the values above; only normal numbers
  if (value == 0) return 0;
  int exponent = 0;
  // Value = mantissa·2^exponent, mantissa in [0.5, 1).
  const float mantissa = std::frexp(std::fabs(value), &exponent);
  return static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) | ((exponent + 14) << 10) |
                                    (static_cast<int>(mantissa * 2048) & 0x3ff));
}

OwnedTensor make_tensor(const std::string& name, formats::DType dtype,
                        const std::vector<std::size_t>& shape, const std::vector<float>& values) {
  OwnedTensor tensor{name, dtype, shape, {}};
  const auto append = [&](auto value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    tensor.bytes.insert(tensor.bytes.end(), bytes.begin(), bytes.end());
  };
  for (const float value : values) {
    if (dtype == formats::DType::kF32) append(value);
    if (dtype == formats::DType::kBF16) append(to_bfloat16(value).bits);
    if (dtype == formats::DType::kF16) append(half_bits(value));
    if (dtype == formats::DType::kF64) append(static_cast<double>(value));
    if (dtype == formats::DType::kI64) append(static_cast<std::int64_t>(value));
    if (dtype == formats::DType::kI8 || dtype == formats::DType::kF8E4M3)
      append(static_cast<std::int8_t>(value));
    if (dtype == formats::DType::kBool) append(value != 0);
  }
  return tensor;
}

class PretrainedTest : public ::testing::TestWithParam<const Family*> {
 protected:
  PretrainedTest()
      : config_(tiny_config(*GetParam())),
        model_(config_, testing::make_head),
        prefix_(GetParam()->base_prefix) {
    for (const nn::ParameterSpec& parameter : model_.layout().parameters()) {
      expected_.push_back(exact_values(parameter.size, parameter.offset));
    }
  }

  // The tensors of a checkpoint of the model; `rename` returns the name in the file, empty to leave
  // the tensor out.
  std::vector<OwnedTensor> checkpoint(
      formats::DType dtype, const std::function<std::string(const std::string&)>& rename) {
    std::vector<OwnedTensor> tensors;
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      const nn::ParameterSpec& parameter = model_.layout().parameters()[i];
      const std::string name = rename(parameter.name);
      if (!name.empty()) tensors.push_back(make_tensor(name, dtype, parameter.shape, expected_[i]));
    }
    return tensors;
  }
  void write(const std::vector<OwnedTensor>& tensors) {
    std::vector<formats::TensorView> views;
    for (const OwnedTensor& tensor : tensors)
      views.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
    formats::write_safetensors(folder_ / "model.safetensors", views);
  }
  LoadReport load() {
    weights_.assign(model_.layout().size(), NAN);  // whatever is not written shows
    return load_pretrained(folder_.path(), config_, model_.layout(), weights_, options_);
  }
  void expect_loaded(const std::string& but_not = "none") {
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      const nn::ParameterSpec& parameter = model_.layout().parameters()[i];
      if (parameter.name.starts_with(but_not)) continue;
      EXPECT_TRUE(
          std::equal(expected_[i].begin(), expected_[i].end(), weights_.begin() + parameter.offset))
          << parameter.name;
    }
    for (const float weight : weights_) ASSERT_FALSE(std::isnan(weight));
  }
  std::string without_prefix(const std::string& name) const {
    return name.starts_with(prefix_) ? name.substr(prefix_.size()) : name;
  }

  ModelConfig config_;
  EncoderModel model_;
  std::string prefix_;
  std::string head_ = testing::output_layer(*GetParam(), "qa_outputs");
  std::string norm_ = fmt::format("{}embeddings.{}.weight", prefix_, GetParam()->embeddings.norm);
  std::string word_ = fmt::format("{}embeddings.{}.weight", prefix_, GetParam()->embeddings.word);
  std::vector<std::vector<float>> expected_;
  std::vector<float> weights_;
  LoadOptions options_;
  tandem::testing::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(All, PretrainedTest,
                         ::testing::ValuesIn(families().begin(), families().end()),
                         [](const auto& test) { return std::string(test.param->class_prefix); });

TEST_P(PretrainedTest, LoadsEveryDtype) {
  for (const formats::DType dtype :
       {formats::DType::kF32, formats::DType::kF16, formats::DType::kBF16, formats::DType::kF64}) {
    write(checkpoint(dtype, [](const std::string& name) { return name; }));
    const LoadReport report = load();
    EXPECT_TRUE(report.newly_initialized.empty());
    EXPECT_TRUE(report.unused.empty());
    EXPECT_TRUE(report.ignored.empty());
    EXPECT_EQ(report.file, folder_ / "model.safetensors");
    expect_loaded();
  }
}

// model.double() saved with torch.save, whole and in shards.
TEST_P(PretrainedTest, LoadsTorchFilesInDouble) {
  const std::vector<OwnedTensor> tensors =
      checkpoint(formats::DType::kF64, [](const std::string& name) { return name; });
  std::vector<formats::TensorView> views;
  for (const OwnedTensor& tensor : tensors)
    views.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  formats::write_torch_state_dict(folder_ / "pytorch_model.bin", views);
  EXPECT_TRUE(load().newly_initialized.empty());
  expect_loaded();

  std::filesystem::remove(folder_ / "pytorch_model.bin");
  std::string map;
  for (const formats::TensorView& view : views)
    map += fmt::format("{}\"{}\": \"{}\"", map.empty() ? "" : ", ", view.name,
                       &view == &views.front() ? "a.safetensors" : "b.safetensors");
  formats::write_safetensors(folder_ / "a.safetensors", std::span(views).first(1));
  formats::write_safetensors(folder_ / "b.safetensors", std::span(views).subspan(1));
  write_file(folder_ / "model.safetensors.index.json",
             fmt::format("{{\"weight_map\": {{{}}}}}", map));
  EXPECT_TRUE(load().newly_initialized.empty());
  expect_loaded();
}

TEST_P(PretrainedTest, BuffersMayHaveAnyDtypeAndParametersOnlyFloats) {
  const auto same = [](const std::string& name) { return name; };
  std::vector<OwnedTensor> tensors = checkpoint(formats::DType::kF32, same);
  tensors.push_back(
      make_tensor(prefix_ + "embeddings.position_ids", formats::DType::kI64, {1, 2}, {0, 1}));
  tensors.push_back(
      make_tensor(prefix_ + "embeddings.token_type_ids", formats::DType::kI64, {1, 2}, {0, 0}));
  tensors.push_back(make_tensor("mask", formats::DType::kBool, {2}, {0, 1}));
  write(tensors);
  const LoadReport report = load();
  EXPECT_EQ(report.ignored.size(), 2u);
  EXPECT_THAT(report.unused, ElementsAre("mask"));
  expect_loaded();

  for (const auto& [dtype, name] : {std::pair{formats::DType::kI8, "I8"},
                                    {formats::DType::kBool, "BOOL"},
                                    {formats::DType::kF8E4M3, "F8_E4M3"}}) {
    tensors = checkpoint(formats::DType::kF32, same);
    for (OwnedTensor& tensor : tensors) {
      if (tensor.name == head_ + ".bias") tensor = make_tensor(tensor.name, dtype, {2}, {1, 2});
    }
    write(tensors);
    EXPECT_THAT([&] { load(); },
                ThrowsMessage<DataError>(HasSubstr(
                    fmt::format("'{}.bias' is {}; expected F32, F16, BF16 or F64", head_, name))));
  }
}

TEST_P(PretrainedTest, LoadsABareEncoderAndDrawsTheHead) {
  for (const bool with_prefix : {true, false}) {
    write(checkpoint(formats::DType::kF32, [&](const std::string& name) {
      if (name.starts_with(head_)) return std::string();
      return with_prefix ? name : without_prefix(name);
    }));
    EXPECT_THAT(load().newly_initialized, ElementsAre(head_ + ".bias", head_ + ".weight"));
    expect_loaded(head_);
    const float* head = weights_.data() + model_.layout().find(head_ + ".weight")->offset;
    EXPECT_NE(head[0], head[1]);
    EXPECT_LT(std::fabs(head[0]), 6 * config_.initializer_range);
    EXPECT_EQ(weights_[model_.layout().find(head_ + ".bias")->offset], 0);
  }
}

TEST_P(PretrainedTest, UnderstandsGammaAndBeta) {
  const auto old_name = [](std::string name) {
    const bool layer_norm =
        name.find("LayerNorm") != std::string::npos || name.find("layer_norm") != std::string::npos;
    if (layer_norm && name.ends_with(".weight")) return name.substr(0, name.size() - 7) + ".gamma";
    if (layer_norm && name.ends_with(".bias")) return name.substr(0, name.size() - 5) + ".beta";
    return name;
  };
  write(checkpoint(formats::DType::kF32, old_name));
  EXPECT_TRUE(load().newly_initialized.empty());
  expect_loaded();
}

TEST_P(PretrainedTest, ReportsTensorsThatItDoesNotUse) {
  std::vector<OwnedTensor> tensors =
      checkpoint(formats::DType::kF32, [](const std::string& name) { return name; });
  std::vector<std::string> known = {"pooler.dense.weight", prefix_ + "pooler.dense.bias"};
  for (const std::string_view head : GetParam()->pretraining_heads)
    known.push_back(std::string(head) + "weight");
  for (const std::string& name : known)
    tensors.push_back(make_tensor(name, formats::DType::kF32, {1}, {1}));
  known.push_back(prefix_ + "embeddings.position_ids");
  tensors.push_back(make_tensor(known.back(), formats::DType::kI64, {1, 2}, {0, 1}));
  tensors.push_back(make_tensor("other.weight", formats::DType::kF32, {1}, {1}));
  write(tensors);
  const LoadReport report = load();
  EXPECT_THAT(report.ignored, UnorderedElementsAreArray(known));
  EXPECT_THAT(report.unused, ElementsAre("other.weight"));
  expect_loaded();
}

TEST_P(PretrainedTest, InitialisesMissingEncoderParametersWithAWarning) {
  write(checkpoint(formats::DType::kF32, [&](const std::string& name) {
    return name == norm_ || name == word_ ? "" : name;
  }));
  EXPECT_THAT(load().newly_initialized, ElementsAre(word_, norm_));
  EXPECT_EQ(weights_[model_.layout().find(norm_)->offset], 1.0f);
  const float* table = weights_.data() + model_.layout().find(word_)->offset;
  EXPECT_EQ(table[0] == 0.0f, GetParam()->truncated_deviation == nullptr);  // the padding row
  EXPECT_NE(table[config_.hidden_size], 0.0f);
}

// Both tables of a family that counts tokens have a row of the padding.
TEST_P(PretrainedTest, ThePaddingsRowsAreZero) {
  ModelConfig config = config_;
  config.pad_token_id = 1;
  weights_.resize(model_.layout().size());
  initialize_parameters(config, model_.layout(), weights_, 1);
  const bool counts_tokens = GetParam()->positions == nn::Positions::kTokens;
  for (const auto& [table, has_padding] :
       {std::pair{word_, GetParam()->truncated_deviation == nullptr},
        {prefix_ + "embeddings.position_embeddings.weight", counts_tokens}}) {
    const nn::ParameterSpec* parameter = model_.layout().find(table);
    if (parameter == nullptr) continue;  // a family without positions
    const std::span rows = std::span(weights_).subspan(parameter->offset, parameter->size);
    const std::span row = rows.subspan(config.embedding_width(), config.embedding_width());
    EXPECT_EQ(std::all_of(row.begin(), row.end(), [](float w) { return w == 0; }), has_padding)
        << table;
  }
}

TEST_P(PretrainedTest, RefusesAnotherShape) {
  std::vector<OwnedTensor> tensors =
      checkpoint(formats::DType::kF32, [](const std::string& name) { return name; });
  const std::string& name = word_;
  const std::size_t width = config_.embedding_width();
  for (OwnedTensor& tensor : tensors) {
    if (tensor.name == name)
      tensor = make_tensor(name, formats::DType::kF32, {39, width}, exact_values(39 * width, 0));
  }
  write(tensors);
  EXPECT_THAT(
      [&] { load(); },
      ThrowsMessage<DataError>(AllOf(
          HasSubstr(fmt::format("model.safetensors: tensor '{}' has shape [39, {}]", name, width)),
          HasSubstr(fmt::format("needs [40, {}]", width)))));
}

// A head for another number of labels: refused with the flag that draws it anew, and then drawn as
// a missing one.
TEST_P(PretrainedTest, DrawsAHeadOfAnotherShapeAnewWhereThatIsAskedFor) {
  std::vector<OwnedTensor> tensors =
      checkpoint(formats::DType::kF32, [](const std::string& name) { return name; });
  for (OwnedTensor& tensor : tensors) {
    if (!tensor.name.starts_with(head_)) continue;
    std::vector<std::size_t> shape = tensor.shape;
    shape[0] = 5;
    const std::size_t size = shape.size() == 1 ? 5 : 5 * shape[1];
    tensor = make_tensor(tensor.name, formats::DType::kF32, shape, exact_values(size, 0));
  }
  write(tensors);
  EXPECT_THAT([&] { load(); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("the head was trained for another number"),
                                             HasSubstr("--ignore_mismatched_sizes"))));
  options_.ignore_mismatched_sizes = true;
  const LoadReport report = load();
  EXPECT_THAT(report.newly_initialized, ElementsAre(head_ + ".bias", head_ + ".weight"));
  EXPECT_THAT(
      report.mismatched,
      ::testing::Contains(head_ + ".bias: found shape [5] in the checkpoint and [2] in the model"));
  expect_loaded(head_);
  const std::vector<float> drawn = weights_;
  write(checkpoint(formats::DType::kF32,
                   [&](const std::string& name) { return name.starts_with(head_) ? "" : name; }));
  load();
  EXPECT_EQ(drawn, weights_);
}

// As resize_token_embeddings(): two words more than the file has are the mean of its rows.
TEST_P(PretrainedTest, WordsGrowWhereThatIsAskedFor) {
  std::vector<OwnedTensor> tensors =
      checkpoint(formats::DType::kF32, [](const std::string& name) { return name; });
  const std::string name =
      fmt::format("{}embeddings.{}.weight", prefix_, GetParam()->embeddings.word);
  const nn::ParameterSpec& words = *model_.layout().find(name);
  const std::size_t width = words.shape[1], kept = (words.shape[0] - 2) * width;
  for (OwnedTensor& tensor : tensors) {
    if (tensor.name == name)
      tensor = make_tensor(name, formats::DType::kF32, {words.shape[0] - 2, width},
                           exact_values(kept, words.offset));
  }
  write(tensors);
  EXPECT_THAT([&] { load(); }, ThrowsMessage<DataError>(HasSubstr(name)));
  options_.grows_vocabulary = true;
  const LoadReport report = load();
  EXPECT_THAT(report.newly_initialized, IsEmpty());
  ASSERT_EQ(report.grown.size(), 1u);
  EXPECT_THAT(report.grown.front(), HasSubstr(name + ": found shape"));
  expect_loaded(name);
  const float* const found = weights_.data() + words.offset;
  for (std::size_t column = 0; column < width; ++column) {
    double sum = 0;
    for (std::size_t at = column; at < kept; at += width) sum += found[at];
    const double mean = sum / static_cast<double>(words.shape[0] - 2);
    EXPECT_NEAR(found[kept + column], mean, 1e-6 * std::abs(mean) + 1e-9);
    EXPECT_EQ(found[kept + column], found[kept + width + column]);
  }
}

TEST_P(PretrainedTest, RefusesIntegersDuplicatesAndUnknownTensors) {
  std::vector<OwnedTensor> tensors =
      checkpoint(formats::DType::kF32, [](const std::string& name) { return name; });
  for (OwnedTensor& tensor : tensors) {
    if (tensor.name == head_ + ".bias")
      tensor = make_tensor(tensor.name, formats::DType::kI64, {2}, {1, 2});
  }
  write(tensors);
  EXPECT_THAT([&] { load(); }, ThrowsMessage<DataError>(HasSubstr(
                                   "'" + head_ + ".bias' is I64; expected F32, F16, BF16 or F64")));

  tensors = checkpoint(formats::DType::kF32, [](const std::string& name) { return name; });
  tensors.push_back(
      make_tensor(without_prefix(norm_), formats::DType::kF32, {32}, exact_values(32, 0)));
  write(tensors);
  EXPECT_THAT([&] { load(); },
              ThrowsMessage<DataError>(HasSubstr("is a second value of " + norm_)));

  write({make_tensor("model.layers.0.weight", formats::DType::kF32, {1}, {1})});
  EXPECT_THAT([&] { load(); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("holds no parameter of a"),
                                             HasSubstr("'model.layers.0.weight'"))));
}

TEST_P(PretrainedTest, NamesTheFileThatIsThereInstead) {
  EXPECT_THAT([&] { load(); },
              ThrowsMessage<DataError>(
                  HasSubstr("no weights in this model directory; expected model.safetensors or")));
  write_file(folder_ / "tf_model.h5", "x");
  EXPECT_THAT([&] { load(); }, ThrowsMessage<DataError>(
                                   HasSubstr("found tf_model.h5, weights of another framework")));
}

// Written in both forms, read back: the same weights, and the file that torch reads is what a
// directory without safetensors is loaded from.
TEST_P(PretrainedTest, SavesForTorchWhatItLoads) {
  const TestModel test(config_);
  save_pretrained(folder_.path(), config_, model_.architecture(), model_.layout(), test.f32,
                  WeightFormat::kTorch);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model.safetensors"));
  const LoadReport report = load();
  EXPECT_EQ(report.file, folder_ / "pytorch_model.bin");
  EXPECT_TRUE(report.newly_initialized.empty());
  EXPECT_EQ(weights_, test.f32);
}

TEST_P(PretrainedTest, SavesWhatItLoads) {
  const TestModel test(config_);
  save_pretrained(folder_.path(), config_, model_.architecture(), model_.layout(), test.f32);
  const ModelConfig saved_config = ModelConfig::load(folder_.path());
  const EncoderModel saved(saved_config, testing::make_head);
  std::vector<float> weights(saved.layout().size(), NAN);
  const LoadReport report = load_pretrained(folder_.path(), saved_config, saved.layout(), weights);
  EXPECT_TRUE(report.newly_initialized.empty());
  EXPECT_EQ(weights, test.f32);
  const formats::SafetensorsFile file(folder_ / "model.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), model_.layout().parameters().size());
}

TEST(InitializeParameters, DependsOnTheSeedAlone) {
  const ModelConfig config = tiny_config(kBert);
  const EncoderModel model(config, testing::make_head);
  std::vector<float> a(model.layout().size());
  std::vector<float> b(model.layout().size());
  initialize_parameters(config, model.layout(), a, 1);
  initialize_parameters(config, model.layout(), b, 1);
  EXPECT_EQ(a, b);
  initialize_parameters(config, model.layout(), b, 2);
  EXPECT_NE(a, b);
}

// create_sinusoidal_embeddings of transformers: sin in the even columns, cos in the odd ones.
TEST(InitializeParameters, FillsSinusoidalPositions) {
  ModelConfig config = tiny_config(kDistilBert);
  config.sinusoidal_pos_embds = true;
  const EncoderModel model(config, testing::make_head);
  std::vector<float> weights(model.layout().size());
  initialize_parameters(config, model.layout(), weights, 1);
  const float* table =
      weights.data() +
      model.layout().find("distilbert.embeddings.position_embeddings.weight")->offset;
  EXPECT_EQ(table[0], 0.0f);
  EXPECT_EQ(table[1], 1.0f);
  EXPECT_FLOAT_EQ(table[32 * 3 + 4], std::sin(3 / std::pow(10000.0, 4.0 / 32)));
  EXPECT_FLOAT_EQ(table[32 * 3 + 5], std::cos(3 / std::pow(10000.0, 4.0 / 32)));
}

}  // namespace
}  // namespace tandem::models
