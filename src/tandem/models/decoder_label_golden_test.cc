// Decoders with the head of …ForSequenceClassification against what transformers computes: names,
// logits, loss and gradients (tests/parity/golden/decoders/labels.json).
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <string>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/golden_gradients.h"
#include "tandem/models/heads/score_head.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/models/pretrained/parameter_order.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using nlohmann::json;
using nn::Precision;

constexpr std::size_t kLabels = 3;

class DecoderLabelGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ordered_ = nlohmann::ordered_json::parse(read_file(std::filesystem::path(TANDEM_SOURCE_DIR) /
                                                       "tests/parity/golden/decoders/labels.json"))
                   .at("classes")
                   .at(GetParam());
    expected_ = ordered_;
    model_ = std::make_unique<EncoderModel>(
        ModelConfig::parse(expected_.at("config").dump(), "config.json", decoder_families()),
        [](const ModelConfig& config, nn::ParameterLayout& layout) {
          return make_sequence_head(kLabels, config, layout);
        });
    weights_.resize(model_->layout().size());
    for (const nn::ParameterSpec& parameter : model_->layout().parameters()) fill(parameter);
    // transformers reads the last token in front of the padding, also where a text ends with it.
    for (std::size_t i = 0; i < expected_.at("rows").size(); ++i) {
      auto ids = expected_["rows"][i].get<std::vector<std::int32_t>>();
      while (ids.back() == ignored_end(model_->config())) ids.pop_back();
      batch_.append(ids, {}, i);
    }
  }

  // weight_of() of make_decoder_label_goldens.py.
  void fill(const nn::ParameterSpec& parameter) {
    const auto* name = reinterpret_cast<const Bytef*>(parameter.name.data());
    const auto seed =
        static_cast<std::uint32_t>(crc32(0, name, static_cast<uInt>(parameter.name.size())));
    const bool norm = parameter.name.find("norm") != std::string::npos ||
                      parameter.name.find(".ln_") != std::string::npos;
    for (std::size_t i = 0; i < parameter.size; ++i) {
      const auto mixed = static_cast<std::uint32_t>(i * 2654435761u + seed);
      weights_[parameter.offset + i] =
          static_cast<float>((mixed >> 20) % 512) / 512.0f - 0.5f + (norm ? 1.0f : 0.0f);
    }
  }

  nlohmann::ordered_json ordered_;
  json expected_;
  std::unique_ptr<EncoderModel> model_;
  std::vector<float> weights_;
  nn::PackedBatch batch_;
};

INSTANTIATE_TEST_SUITE_P(Decoders, DecoderLabelGoldenTest,
                         ::testing::Values("gpt2", "llama", "qwen2", "qwen3"),
                         [](const auto& test) { return test.param; });

TEST_P(DecoderLabelGoldenTest, HasTheClassAndTheParametersInTheirOrder) {
  EXPECT_EQ(model_->architecture(), expected_.at("config").at("architectures").at(0));
  std::vector<std::string> names, expected;
  for (const nn::ParameterSpec* parameter : parameters_as_defined(model_->layout())) {
    names.push_back(parameter->name);
    EXPECT_EQ(json(parameter->shape), expected_.at("parameters").at(parameter->name));
  }
  for (const auto& [name, shape] : ordered_.at("parameters").items()) expected.push_back(name);
  EXPECT_EQ(names, expected);
}

TEST_P(DecoderLabelGoldenTest, AStepMatchesHuggingFace) {
  for (const char* kernels : {"", "reference"}) {
    SCOPED_TRACE(kernels);
    TestContext context(2, kernels, Precision::kFloat32);
    Activations activations = model_->make_activations({batch_.rows(), batch_.num_sequences()},
                                                       Precision::kFloat32, PassKind::kTraining);
    std::vector<float> logits(model_->num_logits(batch_)), grad_logits(logits.size());
    model_->forward(context, {weights_, {}}, batch_, {}, activations, logits);
    double loss = 0;
    const std::size_t texts = batch_.num_sequences();
    for (std::size_t i = 0; i < texts; ++i) {
      const auto label = expected_.at("labels")[i].get<std::size_t>();
      double sum = 0;
      for (std::size_t c = 0; c < kLabels; ++c) {
        const float logit = logits[i * kLabels + c];
        EXPECT_NEAR(logit, expected_.at("logits_f64")[i][c].get<double>(), 2e-5) << i << " " << c;
        sum += std::exp(static_cast<double>(logit));
      }
      for (std::size_t c = 0; c < kLabels; ++c) {
        const double p = std::exp(static_cast<double>(logits[i * kLabels + c])) / sum;
        if (c == label) loss -= std::log(p) / static_cast<double>(texts);
        grad_logits[i * kLabels + c] =
            static_cast<float>((p - (c == label ? 1 : 0)) / static_cast<double>(texts));
      }
    }
    EXPECT_NEAR(loss, expected_.at("loss_f64").get<double>(), 1e-5);
    std::vector<float> grads(weights_.size(), 3.0f);  // whatever was there
    model_->backward(context, {weights_, {}}, batch_, {}, grad_logits, activations, grads, false,
                     [](std::size_t) {});
    testing::expect_golden_gradients(expected_.at("gradients"), model_->layout(), grads);
  }
}

}  // namespace
}  // namespace tandem::models
