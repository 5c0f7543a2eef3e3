// The encoder with layers of any kind, on layers that are not tandem's own: layers that cannot
// restore their output, one whose rows do not read each other, and a shared parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/heads/pooling_head.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/models/test_models.h"
#include "toy/toy_family.h"

namespace tandem::toy {
namespace {

using models::PassKind;
using models::testing::TestContext;
using models::testing::TestModel;
using models::testing::tiny_batch;
using nn::Precision;

std::unique_ptr<models::Head> first_row_head(const models::ModelConfig& config,
                                             nn::ParameterLayout& layout) {
  return models::make_sequence_head(3, config, layout);
}

std::unique_ptr<models::Head> mean_head(const models::ModelConfig& config,
                                        nn::ParameterLayout& layout) {
  return models::make_pooling_head({models::Pooling::kMean}, /*include_prompt=*/true, config,
                                   layout);
}

models::ModelConfig tiny_toy() {
  models::ModelConfig config = models::testing::tiny_config(kToy);
  config.num_hidden_layers = 3;
  return config;
}

struct Results {
  std::vector<float> logits, grads;
  std::vector<std::size_t> ends;
};

class ToyLayersTest : public ::testing::TestWithParam<Precision> {
 protected:
  // grad_logits is k for logit k.
  Results run(const TestModel& test, PassKind kind, bool padded = false) {
    const nn::PackedBatch batch = tiny_batch(padded);
    models::Activations activations =
        test.model.make_activations({batch.rows(), batch.num_sequences()}, GetParam(), kind);
    Results results;
    results.logits.resize(test.model.num_logits(batch));
    results.grads.resize(test.f32.size());
    const nn::Weights weights = test.weights(GetParam());
    test.model.forward(context_, weights, batch, {}, activations, results.logits);
    EXPECT_EQ(activations.bytes(), activations.bytes_used());
    if (!is_training(kind)) return results;
    std::vector<float> grad_logits(results.logits.size());
    for (std::size_t k = 0; k < grad_logits.size(); ++k) grad_logits[k] = static_cast<float>(k);
    test.model.backward(context_, weights, batch, {}, grad_logits, activations, results.grads,
                        false, [&](std::size_t end) { results.ends.push_back(end); });
    return results;
  }
  double loss(const TestModel& test) {
    const std::vector<float> logits = run(test, PassKind::kInference).logits;
    double sum = 0;
    for (std::size_t k = 0; k < logits.size(); ++k) sum += static_cast<double>(k) * logits[k];
    return sum;
  }

  TestContext context_;
};

TEST_P(ToyLayersTest, EveryKindOfPassHasTheSameBits) {
  for (const models::MakeHead& head :
       {models::MakeHead(first_row_head), models::MakeHead(mean_head)}) {
    const TestModel test(tiny_toy(), 7, head);
    const Results training = run(test, PassKind::kTraining);
    const Results checkpointed = run(test, PassKind::kCheckpointed);
    EXPECT_EQ(training.logits, run(test, PassKind::kInference).logits);
    EXPECT_EQ(training.logits, checkpointed.logits);
    EXPECT_EQ(training.grads, checkpointed.grads);
    EXPECT_EQ(training.logits, run(test, PassKind::kTraining, /*padded=*/true).logits);
  }
}

// The scale is the last layer, and the shift is final when every layer is.
TEST_P(ToyLayersTest, GradientsBecomeFinalInTheOrderOfTheLayout) {
  const TestModel test(tiny_toy(), 7, first_row_head);
  const auto end_of = [&](const char* name) {
    return align_up(test.model.layout().find(name)->end(), nn::ParameterLayout::kAlignment);
  };
  EXPECT_THAT(
      run(test, PassKind::kTraining).ends,
      ::testing::ElementsAre(test.model.layout().find("toy.scale.weight")->offset,
                             end_of("toy.scale.weight"), end_of("toy.blocks.2.mix.bias"),
                             end_of("toy.blocks.1.mix.bias"), end_of("toy.blocks.0.mix.bias"),
                             end_of("toy.shift.bias"), test.model.layout().size()));
}

TEST_P(ToyLayersTest, CountsTheProductsOfTheTable) {
  const TestModel test(tiny_toy(), 7, mean_head);
  EXPECT_EQ(test.model.training_flops(9, 9), 6.0 * 3 * 32 * 32);
}

INSTANTIATE_TEST_SUITE_P(Precisions, ToyLayersTest,
                         ::testing::Values(Precision::kFloat32, Precision::kBfloat16));

class ToyDerivative : public ToyLayersTest {};

// Along the gradient of each parameter, as in models/extending_test.cc.
TEST_P(ToyDerivative, BackwardIsTheDerivative) {
  for (const models::MakeHead& head :
       {models::MakeHead(first_row_head), models::MakeHead(mean_head)}) {
    TestModel test(tiny_toy(), 7, head);
    const std::vector<float> grads = run(test, PassKind::kTraining).grads;
    for (const char* name : {"toy.scale.weight", "toy.blocks.2.mix.weight", "toy.blocks.0.mix.bias",
                             "toy.shift.bias", "toy.embeddings.word_embeddings.weight"}) {
      const nn::ParameterSpec* parameter = test.model.layout().find(name);
      const std::span grad = std::span(grads).subspan(parameter->offset, parameter->size);
      double squares = 0;
      for (const float g : grad) squares += static_cast<double>(g) * g;
      ASSERT_GT(squares, 0) << name;
      const double step = 1e-3 / std::sqrt(squares);
      const std::vector<float> before = test.f32;
      const auto loss_at = [&](double distance) {
        for (std::size_t i = 0; i < grad.size(); ++i) {
          test.f32[parameter->offset + i] =
              static_cast<float>(before[parameter->offset + i] + distance * grad[i]);
        }
        return loss(test);
      };
      const double difference = (loss_at(step) - loss_at(-step)) / (2 * step);
      test.f32 = before;
      EXPECT_NEAR(difference / squares, 1, 0.02) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Float32, ToyDerivative, ::testing::Values(Precision::kFloat32));

}  // namespace
}  // namespace tandem::toy
