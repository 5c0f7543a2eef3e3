// Models whose linear layers run on 8-bit integers, and observers of linear layers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tandem/core/error.h"
#include "tandem/models/test_models.h"
#include "tandem/nn/int8_linear.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using models::testing::TestModel;
using models::testing::tiny_batch;
using models::testing::tiny_config;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Keeps all that it sees.
struct Recorder : nn::LinearObserver {
  struct Input {
    nn::Linear linear;
    std::size_t rows;
    std::vector<float> x;
  };
  void saw(const nn::Linear& linear, std::size_t rows, const float* x) override {
    inputs.push_back({linear, rows, {x, x + rows * linear.in_features}});
  }
  std::vector<Input> inputs;
};

std::vector<float> infer(const kernels::Context& context, const TestModel& test,
                         const nn::Weights& weights) {
  const nn::PackedBatch batch = tiny_batch(false);
  Activations activations = test.model.make_activations({batch.rows(), batch.num_sequences()},
                                                        weights.precision(), PassKind::kInference);
  std::vector<float> logits(test.model.num_logits(batch));
  test.model.forward(context, weights, batch, {}, activations, logits);
  return logits;
}

std::vector<float> infer(const kernels::Context& context, const TestModel& test,
                         const nn::Int8Linears* int8, nn::LinearObserver* observer = nullptr) {
  nn::Weights weights = test.weights(nn::Precision::kFloat32);
  weights.int8 = int8;
  weights.observer = observer;
  return infer(context, test, weights);
}

// Symmetric per output feature, as the scheme requires: scale = max |w| / 127.
nn::Int8Linear quantized(const kernels::Context& context, const TestModel& test, std::size_t offset,
                         std::size_t out_features, std::size_t in_features) {
  std::vector<float> scale;
  std::vector<std::int8_t> weight;
  for (std::size_t n = 0; n < out_features; ++n) {
    const std::span<const float> row(test.f32.data() + offset + n * in_features, in_features);
    float most = 0;
    for (const float w : row) most = std::max(most, std::abs(w));
    scale.push_back(most / 127);
    for (const float w : row) {
      weight.push_back(static_cast<std::int8_t>(std::nearbyint(w / scale.back())));
    }
  }
  return {kernels::Int8Weight::pack(context, out_features, in_features, weight, scale), {}};
}

const nn::ParameterSpec& parameter_at(const TestModel& test, std::size_t offset) {
  const auto& all = test.model.layout().parameters();
  return *std::find_if(all.begin(), all.end(),
                       [&](const nn::ParameterSpec& p) { return p.offset == offset; });
}

// All linear layers in int8, with the ranges that one f32 pass saw (static) or without (dynamic).
nn::Int8Linears all_quantized(const kernels::Context& context, const TestModel& test,
                              bool dynamic) {
  Recorder seen;
  infer(context, test, nullptr, &seen);
  nn::Int8Linears linears;
  for (const Recorder::Input& input : seen.inputs) {
    nn::Int8Linear linear = quantized(context, test, input.linear.weight, input.linear.out_features,
                                      input.linear.in_features);
    const auto [min, max] = std::minmax_element(input.x.begin(), input.x.end());
    if (!dynamic) linear.input = kernels::int8_range(*min, *max);
    linears.set(input.linear, std::move(linear));
  }
  return linears;
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

class Int8ModelTest : public ::testing::TestWithParam<const Family*> {
 protected:
  TestContext context_;
  TestModel test_{tiny_config(*GetParam())};
};

// The layer of queries, keys and values also projects the positions of a family that has them.
TEST_P(Int8ModelTest, AnObserverSeesEachLinearLayerOnceInOrder) {
  Recorder seen;
  const std::vector<float> logits = infer(context_, test_, nullptr, &seen);
  EXPECT_EQ(logits, infer(context_, test_, nullptr));  // it changes nothing
  const ModelConfig& config = test_.model.config();
  const std::size_t H = config.hidden_size;
  const std::size_t I = config.intermediate_size;
  std::vector<std::string> names, want_names;
  std::vector<std::size_t> in_features, want_in_features;
  const bool positions = !models::testing::norm_of_positions(*GetParam()).empty();
  for (const Recorder::Input& input : seen.inputs) {
    const bool of_positions = positions && !names.empty() &&
                              names.back() == parameter_at(test_, input.linear.weight).name;
    EXPECT_EQ(input.rows, of_positions ? 13 : tiny_batch(false).rows());
    names.push_back(parameter_at(test_, input.linear.weight).name);
    in_features.push_back(input.linear.in_features);
  }
  if (config.has_projection()) {
    want_names.push_back(fmt::format("{}embeddings_project.weight", GetParam()->base_prefix));
    want_in_features.push_back(config.embedding_size);
  }
  for (const std::size_t layer : {0, 1}) {
    std::vector<std::string> of_layer = models::testing::linear_weights(*GetParam(), layer);
    if (positions) {
      of_layer.insert(of_layer.begin(), of_layer[0]);
      want_in_features.push_back(H);
    }
    for (std::string& name : of_layer) want_names.push_back(std::move(name));
    want_in_features.insert(want_in_features.end(), {H, H, H, I});
  }
  const std::string output = models::testing::output_layer(*GetParam(), "qa_outputs");
  if (output != "qa_outputs") {
    want_names.push_back(std::string(GetParam()->prediction_head.dense) + ".weight");
    want_in_features.push_back(H);
  }
  want_names.push_back(output + ".weight");
  want_in_features.push_back(H);
  EXPECT_THAT(names, ElementsAreArray(want_names));
  EXPECT_THAT(in_features, ElementsAreArray(want_in_features));
  // The recorded input of the head is the one that the head computed with.
  const Recorder::Input& head = seen.inputs.back();
  const float* w = test_.f32.data() + head.linear.weight;
  double logit = test_.f32[test_.model.layout().find(output + ".bias")->offset];
  for (std::size_t k = 0; k < H; ++k) logit += static_cast<double>(w[k]) * head.x[k];
  EXPECT_NEAR(logit, logits[0], 1e-5);
}

// Only the head, whose output are the logits: the bound of kernels/int8.h for each of them.
TEST_P(Int8ModelTest, AnInt8HeadIsWithinTheBoundOfItsProduct) {
  Recorder seen;
  const std::vector<float> exact = infer(context_, test_, nullptr, &seen);
  const Recorder::Input& input = seen.inputs.back();
  const auto [min, max] = std::minmax_element(input.x.begin(), input.x.end());
  nn::Int8Linear head =
      quantized(context_, test_, input.linear.weight, 2, input.linear.in_features);
  const kernels::Int8Range range = kernels::int8_range(*min, *max);
  head.input = range;
  const std::vector<float> scale(head.weight.scale().begin(), head.weight.scale().end());
  nn::Int8Linears linears;
  linears.set(input.linear, std::move(head));
  const std::vector<float> logits = infer(context_, test_, &linears);
  EXPECT_NE(logits, exact);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float* x = input.x.data() + i / 2 * input.linear.in_features;
    const float* w = test_.f32.data() + input.linear.weight + i % 2 * input.linear.in_features;
    double bound = 1e-5;  // the roundings of f32
    for (std::size_t k = 0; k < input.linear.in_features; ++k) {
      bound += range.scale / 2.0 * std::abs(w[k]) +
               scale[i % 2] / 2.0 * (std::abs(x[k]) + range.scale / 2.0);
    }
    EXPECT_NEAR(logits[i], exact[i], bound);
  }
  // Without the layer all is as before; with it again, too.
  auto taken = linears.take(input.linear.weight);
  EXPECT_EQ(infer(context_, test_, &linears), exact);
  ASSERT_TRUE(taken.has_value());
  EXPECT_FALSE(linears.take(input.linear.weight).has_value());
  linears.set(input.linear, *std::move(taken));
  EXPECT_EQ(infer(context_, test_, &linears), logits);
}

// A weight is wrong by at most half a step of max|w| / 127, an activation by half of its range /
// 255:
// with 32 to 48 normal weights in a row and some hundred values in a range, that is about 0.7 % and
// 0.8 % of their magnitude on average, and as much of a product, 1.1 % together. The errors of nine
// products in a row are independent: 3.2 % (of ten with ELECTRA's projection: 3.4 %). Twice that is
// allowed.
TEST_P(Int8ModelTest, AWholeModelInInt8IsCloseToF32) {
  const std::vector<float> exact = infer(context_, test_, nullptr);
  for (const bool dynamic : {false, true}) {
    const nn::Int8Linears linears = all_quantized(context_, test_, dynamic);
    EXPECT_EQ(linears.size(), test_.model.layout().linears().size());
    const double distance = relative_distance(infer(context_, test_, &linears), exact);
    EXPECT_LE(distance, 0.064) << (dynamic ? "dynamic" : "static");
    EXPECT_GE(distance, 0.001) << (dynamic ? "dynamic" : "static");  // int8 did run
  }
}

TEST_P(Int8ModelTest, BitsAreTheSameForAllThreadsAndImplementations) {
  const auto cpu = kernels::CpuFeatures::detect();
  for (const bool dynamic : {false, true}) {
    const nn::Int8Linears linears = all_quantized(context_, test_, dynamic);
    const std::vector<float> logits = infer(context_, test_, &linears);
    for (const auto& row : kernels::implementations("int8", cpu)) {
      if (!row.reason.empty()) continue;
      for (const int threads : {1, 2}) {
        TestContext other(threads, "int8=" + row.implementation);
        EXPECT_EQ(infer(other, test_, &linears), logits) << row.implementation << ", " << threads;
      }
    }
  }
}

// The bf16 copy of layers in int8 is not read: it may hold anything.
TEST_P(Int8ModelTest, InBf16OnlyTheRestIsBf16) {
  const std::vector<float> exact = infer(context_, test_, nullptr);
  const nn::Int8Linears linears = all_quantized(context_, test_, /*dynamic=*/false);
  std::vector<bfloat16> unread(test_.model.layout().bf16_size(), to_bfloat16(std::nanf("")));
  nn::Weights weights = test_.weights(nn::Precision::kFloat32);
  weights.int8 = &linears;
  weights.bf16 = unread;
  const std::vector<float> logits = infer(context_, test_, weights);
  EXPECT_NE(logits, infer(context_, test_, &linears));
  // Activations between the layers are wrong by at most 2^-9 of themselves, less than by int8.
  EXPECT_LE(relative_distance(logits, exact), 0.064);
  TestContext reference(2, "int8=reference");
  EXPECT_EQ(infer(reference, test_, weights), logits);
}

TEST_P(Int8ModelTest, RefusesWhatInt8CannotDo) {
  const nn::PackedBatch batch = tiny_batch(false);
  const BatchShape shape{batch.rows(), batch.num_sequences()};
  std::vector<float> logits(batch.rows() * 2);
  nn::Int8Linears linears;
  Recorder recorder;
  nn::Weights weights = test_.weights(nn::Precision::kBfloat16);
  Activations bf16 =
      test_.model.make_activations(shape, nn::Precision::kBfloat16, PassKind::kInference);
  const auto forward = [&](Activations& activations) {
    test_.model.forward(context_, weights, batch, {}, activations, logits);
  };
  weights.observer = &recorder;
  EXPECT_THAT([&] { forward(bf16); }, ThrowsMessage<InvalidArgument>(HasSubstr("needs f32")));

  weights = test_.weights(nn::Precision::kFloat32);
  weights.int8 = &linears;
  Activations training =
      test_.model.make_activations(shape, nn::Precision::kFloat32, PassKind::kTraining);
  forward(training);
  std::vector<float> grads(test_.model.layout().size());
  EXPECT_THAT(
      [&] {
        test_.model.backward(context_, weights, batch, {}, logits, training, grads, false,
                             [](std::size_t) {});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("backward through int8 layers")));

  const nn::Linear head = test_.model.layout().linears().front();
  EXPECT_THAT([&] { linears.set(head, quantized(context_, test_, head.weight, 3, 32)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("is 3 x 32; the layer is 2 x 32")));
}

INSTANTIATE_TEST_SUITE_P(Families, Int8ModelTest,
                         ::testing::ValuesIn(families().begin(), families().end()),
                         [](const auto& family) {
                           return std::string(family.param->class_prefix);
                         });

}  // namespace
}  // namespace tandem::models
