// The heads of texts of all families against the formulas in double precision, with dropout; their
// values in transformers are in task_golden_test.cc.
#include "tandem/models/heads/sequence_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>

#include "tandem/models/double_model.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::DoubleModel;
using models::testing::TestContext;
using models::testing::TestModel;
using models::testing::tiny_batch;
using models::testing::tiny_config;
using nn::Precision;

constexpr std::size_t kLabels = 3;
const nn::DropoutStream kDropout = {.enabled = true, .seed = 42, .step = 3};

std::unique_ptr<Head> make_head_of_three(const ModelConfig& config, nn::ParameterLayout& layout) {
  return make_sequence_head(kLabels, config, layout);
}

// Σ k · logit k, whose gradient is k.
double loss_of(const std::vector<double>& logits) {
  double sum = 0;
  for (std::size_t k = 0; k < logits.size(); ++k) sum += static_cast<double>(k) * logits[k];
  return sum;
}

struct Step {
  std::vector<float> logits, grads;
};

class SequenceHeadTest : public ::testing::TestWithParam<std::tuple<const Family*, bool>> {
 protected:
  Step run(const kernels::Context& context, Precision precision,
           PassKind kind = PassKind::kTraining) const {
    Activations activations =
        test_.model.make_activations({batch_.rows(), batch_.num_sequences()}, precision, kind);
    Step step{std::vector<float>(test_.model.num_logits(batch_)),
              std::vector<float>(test_.model.layout().size())};
    const nn::Weights weights = test_.weights(precision);
    test_.model.forward(context, weights, batch_, kDropout, activations, step.logits);
    if (kind == PassKind::kInference) return step;
    std::vector<float> grad_logits(step.logits.size());
    for (std::size_t k = 0; k < grad_logits.size(); ++k) grad_logits[k] = static_cast<float>(k);
    test_.model.backward(context, weights, batch_, kDropout, grad_logits, activations, step.grads,
                         false, [](std::size_t) {});
    return step;
  }

  static ModelConfig config() {
    ModelConfig config = tiny_config(*std::get<0>(GetParam()));
    config.classifier_dropout = 0.3;  // not the encoder's
    return config;
  }
  TestModel test_{config(), 7, make_head_of_three};
  nn::PackedBatch batch_ = tiny_batch(std::get<1>(GetParam()));
  TestContext context_;
};

INSTANTIATE_TEST_SUITE_P(All, SequenceHeadTest,
                         ::testing::Combine(::testing::ValuesIn(families().begin(),
                                                                families().end()),
                                            ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)->class_prefix) +
                                  (std::get<1>(test.param) ? "Padded" : "Packed");
                         });

// The tolerances of encoder_model_test.cc.
TEST_P(SequenceHeadTest, LogitsAndGradientsAreThoseOfTheFormulas) {
  const Step step = run(context_, Precision::kFloat32);
  std::vector<double> parameters(test_.f32.begin(), test_.f32.end());
  const DoubleModel oracle(test_.model, parameters, batch_, kDropout);
  const std::vector<double> want = oracle.sequence_logits(kLabels);
  ASSERT_EQ(step.logits.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) ASSERT_NEAR(step.logits[k], want[k], 1e-5) << k;

  double whole = 0;
  for (const float grad : step.grads) whole += static_cast<double>(grad) * grad;
  std::mt19937 random(5);
  for (const nn::ParameterSpec& parameter : test_.model.layout().parameters()) {
    // The exact gradient of keys' biases is 0: what is left are roundings of the whole gradient.
    const bool of_keys = parameter.name.ends_with("k.bias") ||
                         parameter.name.ends_with("key.bias") ||
                         parameter.name.ends_with("k_lin.bias");
    const double rounding = 1e-6 + (of_keys ? 1e-8 * std::sqrt(whole) : 0);
    std::vector<double> direction(parameter.size);
    double along = 0, squares = 0;
    for (std::size_t i = 0; i < parameter.size; ++i) {
      direction[i] = random() % 2 == 0 ? 1 : -1;
      const double grad = step.grads[parameter.offset + i];
      along += direction[i] * grad;
      squares += grad * grad;
    }
    ASSERT_GT(squares, 0) << parameter.name;
    const auto loss_at = [&](double distance) {
      for (std::size_t i = 0; i < parameter.size; ++i) {
        const std::size_t at = parameter.offset + i;
        parameters[at] = test_.f32[at] + distance * direction[i];
      }
      return loss_of(oracle.sequence_logits(kLabels));
    };
    constexpr double kStep = 1e-6;
    const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    loss_at(0);
    const double size = std::sqrt(static_cast<double>(parameter.size));
    EXPECT_NEAR(along, difference, size * 2e-5 * std::sqrt(squares) + rounding) << parameter.name;
  }
}

TEST_P(SequenceHeadTest, BitsDependNeitherOnThreadsNorOnTheKindOfPass) {
  TestContext one(1);
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    const Step a = run(one, precision);
    const Step b = run(context_, precision);
    EXPECT_EQ(a.logits, b.logits);
    EXPECT_EQ(a.grads, b.grads);
    EXPECT_EQ(run(context_, precision, PassKind::kInference).logits, a.logits);
    EXPECT_EQ(run(context_, precision, PassKind::kCheckpointed).grads, a.grads);
  }
}

}  // namespace
}  // namespace tandem::models
