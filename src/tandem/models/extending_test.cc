// A family and a head that are not tandem's own: what docs/extending shows, and that it works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/layers/post_norm/post_norm.h"
#include "tandem/models/test_models.h"
#include "tandem/nn/linear.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using models::testing::tiny_batch;

// --- docs/extending/family.md ---

constexpr ConfigKey kToyKeys[] = {
    {"vocab_size", &ModelConfig::vocab_size},
    {"width", &ModelConfig::hidden_size},
    {"depth", &ModelConfig::num_hidden_layers},
    {"heads", &ModelConfig::num_attention_heads},
    {"inner_width", &ModelConfig::intermediate_size},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings},
    {"pad_token_id", &ModelConfig::pad_token_id},
    {"dropout", &ModelConfig::hidden_dropout_prob},
};

constexpr PostNorm kToyLayers({.layers = "blocks.",
                               .query = "attention.q",
                               .key = "attention.k",
                               .value = "attention.v",
                               .attention_output = "attention.o",
                               .attention_norm = "attention.norm",
                               .intermediate = "up",
                               .output = "down",
                               .output_norm = "norm"});

constinit const Family kToy = {
    .model_type = "toy",
    .class_prefix = "Toy",
    .base_prefix = "toy.",
    .layers = &kToyLayers,
    .sequence_head = {.dense = "pooler",
                      .output = "classifier",
                      .activation = kernels::Activation::kTanh,
                      .drops_input = true},
    .pretraining_heads = {},
    .attention_output_dropout = true,
    .positions = nn::Positions::kRows,
    .reads_token_types = true,
    .keys = kToyKeys,
    .written_defaults = "{}",
    .set_defaults = [](ModelConfig& config) { config.type_vocab_size = 0; },
};

// --- docs/extending/head.md ---

// Three logits of each sequence, from its first row.
class FirstRowHead final : public Head {
 public:
  FirstRowHead(const ModelConfig& config, nn::ParameterLayout& layout)
      : Head({.class_suffix = "ForFirstRows",
              .unit = HeadShape::Unit::kSequence,
              .reads = HeadShape::Reads::kFirst,
              .num_labels = 3,
              .memory = config.hidden_size,             // the first rows
              .training_memory = config.hidden_size}),  // their gradient
        linear_(layout.add_linear("head", "classifier", 3, config.hidden_size)) {}

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
               std::span<float> logits) const override {
    const std::size_t H = linear_.in_features;
    const std::span<float> first_rows = memory.first(pass.sequences.count() * H);
    for (std::size_t s = 0; s < pass.sequences.count(); ++s) {
      const std::span<const float> row = hidden.subspan(pass.sequences.row_begin[s] * H, H);
      std::copy(row.begin(), row.end(), first_rows.begin() + s * H);
    }
    nn::linear_forward<float>(pass, linear_, first_rows, logits);
  }

  void backward(const nn::Pass& pass, std::span<const float>, std::span<float> memory,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients& grads) const override {
    const std::size_t H = linear_.in_features;
    const std::size_t size = pass.sequences.count() * H;
    const std::span<float> grad_rows = memory.last(size);
    nn::linear_backward<float, float>(pass, linear_, memory.first(size), grad_logits, grad_rows,
                                      /*accumulate_grad_x=*/false, grads);
    std::fill(grad_hidden.begin(), grad_hidden.end(), 0.0f);
    for (std::size_t s = 0; s < pass.sequences.count(); ++s) {
      const std::span<const float> row = grad_rows.subspan(s * H, H);
      std::copy(row.begin(), row.end(), grad_hidden.begin() + pass.sequences.row_begin[s] * H);
    }
  }

 private:
  nn::Linear linear_;
};

// --- tests ---

class Extending : public ::testing::Test {
 protected:
  Extending() : weights_(model_.layout().size()) {
    initialize_parameters(model_.config(), model_.layout(), weights_, 7);
  }

  static ModelConfig config() {
    const Family* const known[] = {&kBert, &kToy};
    return ModelConfig::parse(
        R"({"model_type": "toy", "vocab_size": 40, "width": 32, "depth": 2, "heads": 2,
            "inner_width": 48, "max_position_embeddings": 16, "dropout": 0.2})",
        "config.json", known);
  }
  // Σ k · logit k.
  double loss(nn::Precision precision = nn::Precision::kFloat32) {
    std::vector<bfloat16> rounded(model_.layout().bf16_size());
    for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] = to_bfloat16(weights_[i]);
    nn::Weights weights{weights_, {}};
    if (precision == nn::Precision::kBfloat16) weights.bf16 = rounded;
    Activations activations = model_.make_activations({batch_.rows(), batch_.num_sequences()},
                                                      precision, PassKind::kInference);
    std::vector<float> logits(model_.num_logits(batch_));
    model_.forward(context_, weights, batch_, {}, activations, logits);
    double sum = 0;
    for (std::size_t k = 0; k < logits.size(); ++k) sum += static_cast<double>(k) * logits[k];
    return sum;
  }

  EncoderModel model_{config(), make_head_of<FirstRowHead>};
  std::vector<float> weights_;
  nn::PackedBatch batch_ = tiny_batch(false);
  TestContext context_;
};

TEST_F(Extending, AFamilyIsItsTables) {
  EXPECT_EQ(model_.config().hidden_size, 32u);
  EXPECT_EQ(model_.config().attention_output_dropout_prob(), 0.2);
  EXPECT_EQ(model_.architecture(), "ToyForFirstRows");
  std::vector<std::string> names;
  for (const nn::ParameterSpec& parameter : model_.layout().parameters())
    names.push_back(parameter.name);
  EXPECT_THAT(names, ::testing::Contains("toy.blocks.1.attention.k.bias"));
  EXPECT_EQ(names.front(), "classifier.weight");
  EXPECT_EQ(names.back(), "toy.embeddings.word_embeddings.weight");
  EXPECT_THAT(model_.config().to_json("X"), ::testing::HasSubstr("\"inner_width\": 48"));
}

TEST_F(Extending, AHeadOfSequencesHasItsLogitsAndRunsInBf16) {
  EXPECT_EQ(model_.num_logits(batch_), 9u);
  const double exact = loss();
  EXPECT_NE(exact, 0.0);
  const double rounded = loss(nn::Precision::kBfloat16);
  EXPECT_NE(rounded, exact);
  EXPECT_NEAR(rounded, exact, 0.05 * std::fabs(exact) + 0.05);
}

// Along the gradient of each parameter; the loss is smooth, so a step of 1e-3 of its size errs by
// its square, and f32 by some roundings of the loss.
TEST_F(Extending, BackwardIsTheDerivative) {
  Activations activations = model_.make_activations({batch_.rows(), batch_.num_sequences()},
                                                    nn::Precision::kFloat32, PassKind::kTraining);
  std::vector<float> logits(model_.num_logits(batch_)), grads(weights_.size());
  std::vector<float> grad_logits(logits.size());
  for (std::size_t k = 0; k < logits.size(); ++k) grad_logits[k] = static_cast<float>(k);
  model_.forward(context_, {weights_, {}}, batch_, {}, activations, logits);
  model_.backward(context_, {weights_, {}}, batch_, {}, grad_logits, activations, grads, false,
                  [](std::size_t) {});
  for (const char* name : {"classifier.weight", "classifier.bias", "toy.blocks.1.norm.weight",
                           "toy.blocks.0.up.weight", "toy.embeddings.word_embeddings.weight"}) {
    const nn::ParameterSpec* parameter = model_.layout().find(name);
    const std::span grad = std::span(grads).subspan(parameter->offset, parameter->size);
    double squares = 0;
    for (const float g : grad) squares += static_cast<double>(g) * g;
    ASSERT_GT(squares, 0) << name;
    const double step = 1e-3 / std::sqrt(squares);
    const std::vector<float> before = weights_;
    const auto loss_at = [&](double distance) {
      for (std::size_t i = 0; i < grad.size(); ++i) {
        const std::size_t at = parameter->offset + i;
        weights_[at] = static_cast<float>(before[at] + distance * grad[i]);
      }
      return loss();
    };
    const double difference = (loss_at(step) - loss_at(-step)) / (2 * step);
    weights_ = before;
    EXPECT_NEAR(difference / squares, 1, 0.02) << name;
  }
}

}  // namespace
}  // namespace tandem::models
