#include "tandem/models/encoder/encoder_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <tuple>

#include "tandem/core/error.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/models/double_model.h"
#include "tandem/models/encoder/lora_config.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::DoubleModel;
using models::testing::infer;
using models::testing::TestContext;
using models::testing::TestModel;
using models::testing::tiny_batch;
using models::testing::tiny_config;
using nn::Precision;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Targets of the three sequences of tiny_batch(): inside, inside, and one beyond the rows, which
// does not count.
const std::vector<std::int32_t> kStart = {3, 4, 50};
const std::vector<std::int32_t> kEnd = {4, 7, 1};
const nn::DropoutStream kNoDropout = {};
const nn::DropoutStream kStepDropout = {.enabled = true, .seed = 42, .step = 3};

struct StepResult {
  std::vector<float> logits;
  double loss = 0;
  std::vector<float> grads;
  std::vector<std::size_t> ready;
};

// Forward, loss and backward of one batch.
StepResult run_step(const kernels::Context& context, const TestModel& test, Precision precision,
                    const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
                    Activations& activations) {
  const EncoderModel& model = test.model;
  StepResult result;
  result.logits.resize(batch.rows() * 2);
  std::vector<float> grad_logits(batch.rows() * 2);
  result.grads.assign(model.layout().trained_size(), 0.0f);
  const nn::Weights weights = test.weights(precision);
  model.forward(context, weights, batch, dropout, activations, result.logits);
  result.loss = kernels::span_cross_entropy(context, batch.sequences(), result.logits.data(),
                                            kStart.data(), kEnd.data(), 1.0f, grad_logits.data());
  model.backward(context, weights, batch, dropout, grad_logits, activations, result.grads, false,
                 [&](std::size_t end) { result.ready.push_back(end); });
  return result;
}

StepResult run_step(const kernels::Context& context, const TestModel& test, Precision precision,
                    const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
                    PassKind kind = PassKind::kTraining) {
  Activations activations =
      test.model.make_activations({batch.rows(), batch.num_sequences()}, precision, kind);
  return run_step(context, test, precision, batch, dropout, activations);
}

// (mean start loss + mean end loss) / 2, as kernels::span_cross_entropy.
double double_loss(const std::vector<double>& logits, const nn::PackedBatch& batch) {
  double loss = 0;
  for (std::size_t side = 0; side < 2; ++side) {
    const std::vector<std::int32_t>& targets = side == 0 ? kStart : kEnd;
    double sum = 0;
    int counted = 0;
    for (std::size_t s = 0; s < batch.num_sequences(); ++s) {
      const std::size_t begin = batch.row_begin[s];
      const std::size_t end = batch.row_begin[s + 1];
      if (begin + targets[s] >= end) continue;
      double total = 0;
      for (std::size_t r = begin; r < end; ++r) total += std::exp(logits[r * 2 + side]);
      sum += std::log(total) - logits[(begin + targets[s]) * 2 + side];
      ++counted;
    }
    loss += sum / counted / 2;
  }
  return loss;
}

double norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

// --- Gradients against central differences of the model in double precision ---

struct GradientCase {
  std::string name;
  const Family* family;
  bool padded;
  bool dropout;
  std::string kernels;
  bool adapters = false;  // on every linear layer of a frozen base, with a trained output layer
};

// Two ranks and scales, rsLoRA, and dropout.
ModelConfig config_of(const GradientCase& gradient_case) {
  ModelConfig config = tiny_config(*gradient_case.family);
  if (!gradient_case.adapters) return config;
  LoraConfig lora;
  lora.r = 4;
  lora.lora_alpha = 6;
  lora.lora_dropout = 0.2;
  lora.use_rslora = true;
  lora.target_modules.all_linear = true;
  lora.modules_to_save = {"qa_outputs", "classifier"};
  lora.rank_pattern = {{"query", 3}, {"q_lin", 3}, {"q", 3}, {"Wqkv", 3}};
  lora.alpha_pattern = {{"value", 2}, {"v_lin", 2}, {"v", 2}};
  config.lora = std::make_shared<const LoraConfig>(std::move(lora));
  return config;
}

void PrintTo(const GradientCase& gradient_case, std::ostream* out) { *out << gradient_case.name; }

class GradientTest : public ::testing::TestWithParam<GradientCase> {};

// For every parameter tensor: the derivative along random directions, which all of its elements
// enter. The f64 differences are exact to about 1e-9. f32 has a unit roundoff of 6e-8; about 20
// operations with sums of up to 48 terms lie between a weight and the loss and back, so errors of a
// few hundred roundoffs are expected: 2e-5 of the tensor's gradient norm. A tensor whose true
// gradient vanishes (key biases) has the noise of its neighbours: 1e-6 of the whole norm is added.
TEST_P(GradientTest, MatchesCentralDifferencesInDoublePrecision) {
  const GradientCase& param = GetParam();
  const TestModel test(config_of(param));
  const nn::PackedBatch batch = tiny_batch(param.padded);
  const nn::DropoutStream dropout = param.dropout ? kStepDropout : kNoDropout;
  TestContext context(2, param.kernels);
  const StepResult step = run_step(context, test, Precision::kFloat32, batch, dropout);

  std::vector<double> parameters(test.f32.begin(), test.f32.end());
  const DoubleModel oracle(test.model, parameters, batch, dropout);
  const std::vector<double> expected_logits = oracle.logits();
  for (std::size_t i = 0; i < expected_logits.size(); ++i) {
    ASSERT_NEAR(step.logits[i], expected_logits[i], 1e-5) << "logit " << i;
  }
  EXPECT_NEAR(step.loss, double_loss(expected_logits, batch), 1e-5);

  const double total_norm = norm(step.grads);
  std::mt19937 random(5);
  for (const nn::ParameterSpec& parameter : test.model.layout().parameters()) {
    if (param.adapters && !parameter.trainable) continue;
    // Row 0 of these tables is the padding's and has no gradient.
    const bool has_padding = parameter.name == word_embeddings_name(*param.family) ||
                             (param.family->positions == nn::Positions::kTokens &&
                              parameter.name.ends_with("position_embeddings.weight"));
    const std::size_t no_gradient = has_padding ? parameter.shape[1] : 0;
    const std::span<const float> grad(step.grads.data() + parameter.offset, parameter.size);
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<double> direction(parameter.size);
      double along = 0;
      for (std::size_t i = 0; i < parameter.size; ++i) {
        direction[i] = i < no_gradient ? 0 : (random() % 2 == 0 ? 1 : -1);
        along += direction[i] * static_cast<double>(grad[i]);
      }
      const auto loss_at = [&](double step_size) {
        for (std::size_t i = 0; i < parameter.size; ++i) {
          parameters[parameter.offset + i] =
              test.f32[parameter.offset + i] + step_size * direction[i];
        }
        return double_loss(oracle.logits(), batch);
      };
      constexpr double kStepSize = 1e-6;
      const double difference = (loss_at(kStepSize) - loss_at(-kStepSize)) / (2 * kStepSize);
      loss_at(0);
      const double direction_norm = std::sqrt(static_cast<double>(parameter.size));
      EXPECT_NEAR(along, difference,
                  direction_norm * (2e-5 * norm(grad) + 1e-6 * total_norm) + 1e-8)
          << parameter.name << " repeat " << repeat;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GradientTest,
    ::testing::Values(
        GradientCase{"BertPacked", &kBert, false, false, ""},
        GradientCase{"BertPackedReference", &kBert, false, false, "reference"},
        GradientCase{"BertPadded", &kBert, true, false, ""},
        GradientCase{"BertDropout", &kBert, false, true, ""},
        GradientCase{"BertPaddedDropoutReference", &kBert, true, true, "reference"},
        GradientCase{"DebertaPacked", &kDebertaV2, false, false, ""},
        GradientCase{"DebertaPackedReference", &kDebertaV2, false, false, "reference"},
        GradientCase{"DebertaPaddedDropout", &kDebertaV2, true, true, ""},
        GradientCase{"DebertaDropoutReference", &kDebertaV2, false, true, "reference"},
        GradientCase{"DistilBertPacked", &kDistilBert, false, false, ""},
        GradientCase{"DistilBertPaddedDropout", &kDistilBert, true, true, ""},
        GradientCase{"DistilBertDropoutReference", &kDistilBert, false, true, "reference"},
        GradientCase{"ElectraPacked", &kElectra, false, false, ""},
        GradientCase{"ElectraPaddedDropoutReference", &kElectra, true, true, "reference"},
        GradientCase{"Gpt2Packed", &kGpt2, false, false, ""},
        GradientCase{"Gpt2PaddedDropout", &kGpt2, true, true, ""},
        GradientCase{"Gpt2DropoutReference", &kGpt2, false, true, "reference"},
        GradientCase{"LlamaPacked", &kLlama, false, false, ""},
        GradientCase{"LlamaPaddedDropout", &kLlama, true, true, ""},
        GradientCase{"LlamaDropoutReference", &kLlama, false, true, "reference"},
        GradientCase{"ModernBertPacked", &kModernBert, false, false, ""},
        GradientCase{"ModernBertPackedReference", &kModernBert, false, false, "reference"},
        GradientCase{"ModernBertPaddedDropout", &kModernBert, true, true, ""},
        GradientCase{"ModernBertDropoutReference", &kModernBert, false, true, "reference"},
        GradientCase{"MpnetPacked", &kMpnet, false, false, ""},
        GradientCase{"MpnetPaddedDropout", &kMpnet, true, true, ""},
        GradientCase{"MpnetDropoutReference", &kMpnet, false, true, "reference"},
        GradientCase{"Qwen2Packed", &kQwen2, false, false, ""},
        GradientCase{"Qwen2PaddedDropout", &kQwen2, true, true, ""},
        GradientCase{"Qwen2DropoutReference", &kQwen2, false, true, "reference"},
        GradientCase{"Qwen3Packed", &kQwen3, false, false, ""},
        GradientCase{"Qwen3PaddedDropout", &kQwen3, true, true, ""},
        GradientCase{"Qwen3DropoutReference", &kQwen3, false, true, "reference"},
        GradientCase{"RobertaPacked", &kRoberta, false, false, ""},
        GradientCase{"RobertaPaddedDropout", &kRoberta, true, true, ""},
        GradientCase{"XlmRobertaPadded", &kXlmRoberta, true, false, "reference"},
        GradientCase{"BertAdapters", &kBert, false, true, "", true},
        GradientCase{"BertAdaptersReference", &kBert, true, false, "reference", true},
        GradientCase{"DebertaAdapters", &kDebertaV2, false, true, "", true},
        GradientCase{"DebertaAdaptersReference", &kDebertaV2, true, true, "reference", true},
        GradientCase{"DistilBertAdapters", &kDistilBert, false, true, "", true},
        GradientCase{"ElectraAdapters", &kElectra, false, true, "", true},
        GradientCase{"ModernBertAdapters", &kModernBert, false, true, "", true},
        GradientCase{"ModernBertAdaptersReference", &kModernBert, true, true, "reference", true},
        GradientCase{"MpnetAdapters", &kMpnet, false, true, "", true},
        GradientCase{"Qwen3Adapters", &kQwen3, false, true, "", true},
        GradientCase{"RobertaAdapters", &kRoberta, true, true, "", true},
        GradientCase{"XlmRobertaAdapters", &kXlmRoberta, false, true, "", true}),
    [](const auto& test) { return test.param.name; });

// --- The contract of forward and backward ---

class EncoderModelTest : public ::testing::TestWithParam<std::tuple<const Family*, Precision>> {
 protected:
  TestModel test_{tiny_config(*std::get<0>(GetParam()))};
  Precision precision_ = std::get<1>(GetParam());
  TestContext context_;
};

INSTANTIATE_TEST_SUITE_P(All, EncoderModelTest,
                         ::testing::Combine(::testing::ValuesIn(all_families()),
                                            ::testing::Values(Precision::kFloat32,
                                                              Precision::kBfloat16)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)->class_prefix) +
                                  (std::get<1>(test.param) == Precision::kFloat32 ? "F32" : "Bf16");
                         });

TEST_P(EncoderModelTest, SameBitsForOneAndTwoThreads) {
  TestContext one(1);
  const nn::PackedBatch batch = tiny_batch(true);
  const StepResult a = run_step(one, test_, precision_, batch, kStepDropout);
  const StepResult b = run_step(context_, test_, precision_, batch, kStepDropout);
  EXPECT_THAT(a.logits, ElementsAreArray(b.logits));
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_TRUE(a.grads == b.grads);
}

TEST_P(EncoderModelTest, InferenceAndTrainingForwardAgreeToTheBit) {
  const nn::PackedBatch batch = tiny_batch(false);
  const StepResult step = run_step(context_, test_, precision_, batch, kNoDropout);
  EXPECT_THAT(infer(context_, test_, precision_, batch), ElementsAreArray(step.logits));
}

// No row attends to a pad row, so real rows see the same keys; only the blocking of products
// may differ.
TEST_P(EncoderModelTest, PaddingDoesNotChangeRealRows) {
  const nn::PackedBatch packed = tiny_batch(false);
  const nn::PackedBatch padded = tiny_batch(true);
  const std::vector<float> a = infer(context_, test_, precision_, packed);
  const std::vector<float> b = infer(context_, test_, precision_, padded);
  const double tolerance = precision_ == Precision::kFloat32 ? 2e-6 : 0.02;
  for (std::size_t s = 0; s < packed.num_sequences(); ++s) {
    for (std::size_t i = 0; i < 2 * packed.key_count[s]; ++i) {
      EXPECT_NEAR(a[2 * packed.row_begin[s] + i], b[2 * padded.row_begin[s] + i], tolerance);
    }
  }
}

TEST_P(EncoderModelTest, DropoutFollowsItsStream) {
  const nn::PackedBatch batch = tiny_batch(false);
  nn::DropoutStream next = kStepDropout;
  ++next.step;
  const StepResult a = run_step(context_, test_, precision_, batch, kStepDropout);
  EXPECT_EQ(a.logits, run_step(context_, test_, precision_, batch, kStepDropout).logits);
  EXPECT_NE(a.logits, run_step(context_, test_, precision_, batch, next).logits);
  EXPECT_NE(a.logits, run_step(context_, test_, precision_, batch, kNoDropout).logits);
}

TEST_P(EncoderModelTest, BackwardAccumulatesWhenAsked) {
  const nn::PackedBatch batch = tiny_batch(false);
  const StepResult once = run_step(context_, test_, precision_, batch, kNoDropout);
  const EncoderModel& model = test_.model;
  Activations activations = model.make_activations({batch.rows(), batch.num_sequences()},
                                                   precision_, PassKind::kTraining);
  std::vector<float> logits(batch.rows() * 2);
  std::vector<float> grad_logits(batch.rows() * 2);
  std::vector<float> grads = once.grads;
  const nn::Weights weights = test_.weights(precision_);
  model.forward(context_, weights, batch, kNoDropout, activations, logits);
  kernels::span_cross_entropy(context_, batch.sequences(), logits.data(), kStart.data(),
                              kEnd.data(), 1.0f, grad_logits.data());
  model.backward(context_, weights, batch, kNoDropout, grad_logits, activations, grads, true,
                 [](std::size_t) {});
  std::vector<float> twice = once.grads;
  for (float& value : twice) value *= 2;
  EXPECT_LE(distance(grads, twice),
            1e-5 * norm(twice));  // sums start from another value: a few roundoffs
}

TEST_P(EncoderModelTest, AnnouncesEachGroupWhenItsGradientsAreFinal) {
  const nn::PackedBatch batch = tiny_batch(false);
  const StepResult expected = run_step(context_, test_, precision_, batch, kNoDropout);
  const EncoderModel& model = test_.model;
  Activations activations = model.make_activations({batch.rows(), batch.num_sequences()},
                                                   precision_, PassKind::kTraining);
  std::vector<float> logits(batch.rows() * 2);
  std::vector<float> grad_logits(batch.rows() * 2);
  std::vector<float> grads(model.layout().size(), 0.0f);
  const nn::Weights weights = test_.weights(precision_);
  model.forward(context_, weights, batch, kNoDropout, activations, logits);
  kernels::span_cross_entropy(context_, batch.sequences(), logits.data(), kStart.data(),
                              kEnd.data(), 1.0f, grad_logits.data());
  std::vector<std::size_t> ends;
  model.backward(
      context_, weights, batch, kNoDropout, grad_logits, activations, grads, false,
      [&](std::size_t end) {
        ends.push_back(end);
        EXPECT_TRUE(std::equal(grads.begin(), grads.begin() + end, expected.grads.begin()))
            << "not final up to " << end;
      });
  const Family& family = *model.config().family;
  const auto offset_of_norm = [&](std::string_view name) {
    return model.layout().find(fmt::format("{}{}.weight", family.base_prefix, name))->offset;
  };
  const auto offset_of_layer = [&](std::size_t layer) {
    return model.layout().find(models::testing::first_parameter(family, layer))->offset;
  };
  const EmbeddingNames& embeddings = family.embeddings;
  const bool has_positions = family.positions != nn::Positions::kNone;
  const std::string_view first_of_embeddings =
      !embeddings.norm.empty() ? embeddings.norm
                               : (has_positions ? embeddings.position : embeddings.word);
  const std::size_t end_of_layers =
      offset_of_norm(model.config().has_projection()
                         ? "embeddings_project"
                         : fmt::format("{}{}", embeddings.prefix, first_of_embeddings));
  std::vector<std::size_t> expected_ends = {offset_of_layer(1), offset_of_layer(0)};
  if (const PreNormNames* modern = models::testing::pre_norm_names(family)) {
    expected_ends.insert(expected_ends.begin(), offset_of_norm(modern->final_norm));
  } else if (const auto shared = models::testing::layer_names(family).relative_bias;
             !shared.empty()) {
    expected_ends.push_back(offset_of_norm(shared));
  } else if (const auto norm = models::testing::norm_of_positions(family); !norm.empty()) {
    expected_ends.push_back(offset_of_norm(norm));
  }
  expected_ends.push_back(end_of_layers);
  expected_ends.push_back(model.layout().size());
  EXPECT_THAT(ends, ::testing::ElementsAreArray(expected_ends));
}

TEST_P(EncoderModelTest, UsesExactlyThePlannedMemory) {
  const nn::PackedBatch batch = tiny_batch(true);
  for (const PassKind kind : {PassKind::kInference, PassKind::kTraining, PassKind::kCheckpointed}) {
    Activations activations =
        test_.model.make_activations({batch.rows(), batch.num_sequences()}, precision_, kind);
    std::vector<float> logits(batch.rows() * 2);
    test_.model.forward(context_, test_.weights(precision_), batch, kNoDropout, activations,
                        logits);
    EXPECT_EQ(activations.bytes_used(), activations.bytes());

    const nn::PackedBatch smaller = tiny_batch(false);
    logits.resize(smaller.rows() * 2);
    test_.model.forward(context_, test_.weights(precision_), smaller, kNoDropout, activations,
                        logits);
    EXPECT_LT(activations.bytes_used(), activations.bytes());
    EXPECT_THAT(logits, ElementsAreArray(infer(context_, test_, precision_, smaller)));
  }
}

// An evaluation in the memory of training, between two steps: each computes what it computes alone,
// also when the memory has to grow for it.
TEST_P(EncoderModelTest, PassesTakeTurnsInOneMemory) {
  const nn::PackedBatch batch = tiny_batch(true);
  const nn::PackedBatch smaller = tiny_batch(false);
  const BatchShape fits = {batch.rows(), batch.num_sequences()};
  for (const PassKind kind : {PassKind::kTraining, PassKind::kCheckpointed}) {
    const StepResult alone = run_step(context_, test_, precision_, batch, kStepDropout, kind);
    Activations training = test_.model.make_activations(fits, precision_, kind);
    const std::size_t of_training = training.bytes();
    for (const BatchShape& shape : {fits, BatchShape{100 * batch.rows(), 3}}) {
      Activations inference =
          test_.model.make_activations(shape, precision_, PassKind::kInference, &training);
      EXPECT_EQ(training.bytes(), inference.bytes());
      EXPECT_EQ(training.bytes() > of_training, shape.rows > fits.rows);
      for (const nn::PackedBatch* evaluated : {&batch, &smaller}) {
        const StepResult step =
            run_step(context_, test_, precision_, batch, kStepDropout, training);
        EXPECT_EQ(step.loss, alone.loss);
        EXPECT_EQ(step.grads, alone.grads);
        std::vector<float> logits(evaluated->rows() * 2);
        test_.model.forward(context_, test_.weights(precision_), *evaluated, kNoDropout, inference,
                            logits);
        EXPECT_EQ(logits, infer(context_, test_, precision_, *evaluated));
      }
    }
  }
}

TEST_P(EncoderModelTest, BackwardNeedsItsOwnForward) {
  const nn::PackedBatch batch = tiny_batch(false);
  const BatchShape shape = {batch.rows(), batch.num_sequences()};
  const nn::Weights weights = test_.weights(precision_);
  Activations training = test_.model.make_activations(shape, precision_, PassKind::kTraining);
  Activations inference =
      test_.model.make_activations(shape, precision_, PassKind::kInference, &training);
  std::vector<float> logits(batch.rows() * 2);
  std::vector<float> grads(test_.model.layout().size());
  const auto backward = [&] {
    test_.model.backward(context_, weights, batch, kNoDropout, logits, training, grads, false,
                         [](std::size_t) {});
  };
  test_.model.forward(context_, weights, batch, kNoDropout, training, logits);
  test_.model.forward(context_, weights, batch, kNoDropout, inference, logits);
  EXPECT_THAT(backward, ThrowsMessage<InvalidArgument>(HasSubstr("another pass")));
  test_.model.forward(context_, weights, batch, kNoDropout, training, logits);
  backward();
}

// Recomputing a layer in backward gives the same bits as keeping it: dropout is a function of the
// element's place, and every kernel's result one of its operands.
TEST_P(EncoderModelTest, CheckpointingDoesNotChangeABit) {
  ModelConfig config = test_.model.config();
  config.num_hidden_layers = 3;
  const TestModel test(config);
  for (const bool padded : {false, true}) {
    const nn::PackedBatch batch = tiny_batch(padded);
    const StepResult kept = run_step(context_, test, precision_, batch, kStepDropout);
    const StepResult again =
        run_step(context_, test, precision_, batch, kStepDropout, PassKind::kCheckpointed);
    EXPECT_EQ(kept.loss, again.loss);
    EXPECT_EQ(kept.logits, again.logits);
    EXPECT_EQ(kept.grads, again.grads);
    EXPECT_EQ(kept.ready, again.ready);
  }
}

// Without checkpoints a layer costs its matrices; with them, little more than its output.
TEST_P(EncoderModelTest, CheckpointingSavesMemoryOfDeepModels) {
  const auto bytes_per_layer = [&](PassKind kind) {
    const auto bytes = [&](std::size_t layers) {
      ModelConfig config = test_.model.config();
      config.num_hidden_layers = layers;
      return EncoderModel(config, testing::make_head)
          .make_activations({256, 4}, precision_, kind)
          .bytes();
    };
    return (bytes(12) - bytes(2)) / 10;
  };
  const std::size_t output = 256 * test_.model.config().hidden_size * sizeof(float);
  EXPECT_NEAR(bytes_per_layer(PassKind::kCheckpointed), output, 0.1 * output);
  EXPECT_GT(bytes_per_layer(PassKind::kTraining), 4 * output);
}

// Inference needs the memory of one layer, whatever the depth.
TEST_P(EncoderModelTest, InferenceMemoryDoesNotGrowWithDepth) {
  ModelConfig deep = test_.model.config();
  deep.num_hidden_layers = 12;
  const EncoderModel model(deep, testing::make_head);
  const BatchShape shape = {256, 4};
  EXPECT_EQ(model.make_activations(shape, precision_, PassKind::kInference).bytes(),
            test_.model.make_activations(shape, precision_, PassKind::kInference).bytes());
}

// The padding word's gradient is 0 although its rows are computed.
TEST_P(EncoderModelTest, PaddingWordGetsNoGradient) {
  const StepResult step = run_step(context_, test_, precision_, tiny_batch(true), kNoDropout);
  const Family& family = *test_.model.config().family;
  const nn::ParameterSpec* word = test_.model.layout().find(word_embeddings_name(family));
  const std::size_t width = word->shape[1];
  EXPECT_EQ(norm(std::span(step.grads).subspan(word->offset, width)), 0);
  EXPECT_GT(norm(std::span(step.grads).subspan(word->offset + width, width)), 0);
}

TEST_P(EncoderModelTest, AlignmentGapsStayZero) {
  const StepResult step = run_step(context_, test_, precision_, tiny_batch(true), kStepDropout);
  std::size_t end = 0;
  for (const nn::ParameterSpec& parameter : test_.model.layout().parameters()) {
    for (; end < parameter.offset; ++end) EXPECT_EQ(step.grads[end], 0) << end;
    end = parameter.end();
  }
}

TEST_P(EncoderModelTest, RefusesWhatDoesNotFit) {
  const nn::PackedBatch batch = tiny_batch(false);
  const EncoderModel& model = test_.model;
  std::vector<float> logits(batch.rows() * 2);
  const auto forward = [&](const nn::PackedBatch& input, const BatchShape& capacity,
                           Precision precision) {
    Activations activations = model.make_activations(capacity, precision, PassKind::kTraining);
    model.forward(context_, test_.weights(precision_), input, kNoDropout, activations, logits);
  };
  const BatchShape fits = {batch.rows(), batch.num_sequences()};
  EXPECT_THAT(
      [&] {
        forward(batch, {batch.rows() - 1, 3}, precision_);
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("the batch has 17 rows in 3 sequences; expected 1 to 16")));
  EXPECT_THAT(
      [&] {
        forward(batch, {batch.rows(), 2}, precision_);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("in at most 2")));
  EXPECT_THAT(
      [&] {
        forward(batch, fits,
                precision_ == Precision::kFloat32 ? Precision::kBfloat16 : Precision::kFloat32);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("another precision")));
  nn::PackedBatch unknown_word = batch;
  unknown_word.input_ids[6] = 40;
  EXPECT_THROW(forward(unknown_word, fits, precision_), InvalidArgument);
  nn::PackedBatch too_long;
  too_long.append(std::vector<std::int32_t>(17, 5), {}, 0);  // the model has 16 positions
  const bool has_table = model.config().family->positions != nn::Positions::kNone;
  const bool shared = !models::testing::norm_of_positions(*model.config().family).empty();
  EXPECT_THAT([&] { forward(too_long, fits, precision_); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr(has_table ? "position id 16"
                                      : (shared ? "17 rows; the model has positions for 16"
                                                : "17 rows; the rotary table has 16 positions"))));
  nn::PackedBatch inconsistent = batch;
  inconsistent.token_type_ids.pop_back();
  EXPECT_THAT([&] { forward(inconsistent, fits, precision_); },
              ThrowsMessage<InvalidArgument>(HasSubstr("17 input ids, 16 token types")));
  logits.pop_back();
  EXPECT_THAT([&] { forward(batch, fits, precision_); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("room for 33 logits; expected 34 for 17 rows in 3 sequences")));
}

TEST_P(EncoderModelTest, BackwardNeedsATrainingPass) {
  const nn::PackedBatch batch = tiny_batch(false);
  Activations activations =
      test_.model.make_activations({batch.rows(), 3}, precision_, PassKind::kInference);
  std::vector<float> logits(batch.rows() * 2);
  std::vector<float> grads(test_.model.layout().size());
  EXPECT_THAT(
      [&] {
        test_.model.backward(context_, test_.weights(precision_), batch, kNoDropout, logits,
                             activations, grads, false, [](std::size_t) {});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("training pass")));
}

// bf16 has a unit roundoff of 2^-9. Between two LayerNorms, which keep relative errors as they are,
// a row is rounded about five times (operand, q/k/v, context or pre-activation and activation,
// product), so with 2 blocks in each of 2 layers the relative error of logits is about √20·2^-9 ≈ 1
// % if the roundings are independent and 4 % if they conspire; a gradient passes twice as many.
TEST_P(EncoderModelTest, Bfloat16IsCloseToFloat32) {
  const nn::PackedBatch batch = tiny_batch(false);
  const StepResult f32 = run_step(context_, test_, Precision::kFloat32, batch, kNoDropout);
  for (const std::string operation : {"gemm", "attention"}) {
    for (const auto& row : kernels::implementations(operation, kernels::CpuFeatures::detect())) {
      if (!row.reason.empty()) continue;
      const std::string choice = operation + "=" + row.implementation;
      SCOPED_TRACE(choice);
      TestContext context(2, choice);
      const StepResult bf16 = run_step(context, test_, Precision::kBfloat16, batch, kNoDropout);
      const double logit_error = distance(f32.logits, bf16.logits) / norm(f32.logits);
      EXPECT_GT(logit_error, 1e-5);  // it did run in bf16
      EXPECT_LT(logit_error, 0.04);
      EXPECT_LT(distance(f32.grads, bf16.grads) / norm(f32.grads), 0.08);
    }
  }
}

TEST(EncoderModel, FixedPositionsGetNoGradient) {
  ModelConfig config = tiny_config(kDistilBert);
  config.sinusoidal_pos_embds = true;
  const TestModel test(config);
  TestContext context;
  const StepResult step =
      run_step(context, test, Precision::kFloat32, tiny_batch(false), kNoDropout);
  const nn::ParameterSpec* position =
      test.model.layout().find("distilbert.embeddings.position_embeddings.weight");
  EXPECT_FALSE(position->trainable);
  EXPECT_EQ(norm(std::span(step.grads).subspan(position->offset, position->size)), 0);
  EXPECT_GT(norm(step.grads), 0);
}

// Hidden states are kept for tests and tools.
TEST(EncoderModel, GivesHiddenStates) {
  const TestModel test(tiny_config(kBert));
  TestContext context;
  const nn::PackedBatch batch = tiny_batch(false);
  Activations activations =
      test.model.make_activations({batch.rows(), 3}, Precision::kFloat32, PassKind::kTraining);
  std::vector<float> logits(batch.rows() * 2);
  test.model.forward(context, test.weights(Precision::kFloat32), batch, kNoDropout, activations,
                     logits);
  EXPECT_EQ(activations.hidden_state<float>(0).size(), batch.rows() * 32);
  EXPECT_NE(activations.hidden_state<float>(0)[0], activations.hidden_state<float>(2)[0]);
  EXPECT_THROW(activations.hidden_state<float>(3), std::out_of_range);
}

}  // namespace
}  // namespace tandem::models
