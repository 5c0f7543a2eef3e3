#include "tandem/nn/vocabulary_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tandem/core/error.h"

namespace tandem::nn {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<float> random_values(std::size_t count, std::uint32_t seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(engine);
  return values;
}

// An output layer with a vocabulary of a whole slice, and of more.
struct Example {
  Example(std::size_t rows, std::size_t vocabulary, std::size_t width)
      : x(random_values(rows * width, 1)),
        weight(random_values(vocabulary * width, 2, 0.5f)),
        bias(random_values(vocabulary, 3)) {
    for (std::size_t i = 0; i < rows; ++i)
      targets.push_back(static_cast<std::int32_t>((i * 7919 + vocabulary - 1) % vocabulary));
    layer.rows = rows;
    layer.vocabulary = vocabulary;
    layer.width = width;
  }
  VocabularyLayer view() {
    layer.x = x.data();
    layer.weight = weight.data();
    layer.bias = bias.data();
    layer.targets = targets;
    return layer;
  }
  double logit(std::size_t row, std::size_t token) const {
    double sum = bias[token];
    for (std::size_t k = 0; k < layer.width; ++k)
      sum += static_cast<double>(x[row * layer.width + k]) * weight[token * layer.width + k];
    return sum;
  }

  std::vector<float> x, weight, bias;
  std::vector<std::int32_t> targets;
  VocabularyLayer layer;
};

struct Gradients {
  explicit Gradients(const Example& example)
      : x(example.x.size(), 7), weight(example.weight.size(), 7), bias(example.bias.size(), 7) {}
  VocabularyGradients view(bool accumulate = false) {
    return {.x = x.data(), .weight = weight.data(), .bias = bias.data(), .accumulate = accumulate};
  }
  std::vector<float> x, weight, bias;
};

// The definition, in f64 over the whole matrix.
struct Plain {
  explicit Plain(const Example& example, double scale)
      : x(example.x.size()), weight(example.weight.size()), bias(example.bias.size()) {
    const auto [rows, vocabulary, width] =
        std::tuple(example.layer.rows, example.layer.vocabulary, example.layer.width);
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::size_t v = 0; v < vocabulary; ++v) sum += std::exp(example.logit(row, v));
      const auto target = static_cast<std::size_t>(example.targets[row]);
      loss += (std::log(sum) - example.logit(row, target)) / static_cast<double>(rows);
      for (std::size_t v = 0; v < vocabulary; ++v) {
        const double gradient = (std::exp(example.logit(row, v)) / sum - (v == target)) * scale /
                                static_cast<double>(rows);
        bias[v] += gradient;
        for (std::size_t k = 0; k < width; ++k) {
          x[row * width + k] += gradient * example.weight[v * width + k];
          weight[v * width + k] += gradient * example.x[row * width + k];
        }
      }
    }
  }
  double loss = 0;
  std::vector<double> x, weight, bias;
};

double distance(std::span<const float> found, std::span<const double> expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(found[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

class Runtime {
 public:
  explicit Runtime(std::string_view overrides = {}, int threads = 2,
                   Precision precision = Precision::kFloat32)
      : threads_(threads),
        kernels_(kernels::select_kernels(kernels::CpuFeatures::detect(), overrides, precision)),
        scratch_(threads) {}
  kernels::Context context() { return {threads_, kernels_, scratch_}; }

 private:
  ThreadPool threads_;
  kernels::KernelSet kernels_;
  kernels::Scratch scratch_;
};

// Every implementation of the products and of the softmax that this machine runs.
std::vector<std::string> kernel_sets(Precision precision) {
  std::vector<std::string> all;
  for (const char* operation : {"gemm", "reduce"}) {
    for (const auto& one :
         kernels::implementations(operation, kernels::CpuFeatures::detect(), precision)) {
      if (one.reason.empty()) all.push_back(std::string(operation) + "=" + one.implementation);
    }
  }
  return all;
}

void expect_the_definition(Example example, Precision precision, double loss_error,
                           double gradient_error) {
  constexpr double kScale = 0.5;
  const Plain plain(example, kScale);
  for (const std::string& kernels : kernel_sets(precision)) {
    SCOPED_TRACE(kernels);
    Runtime runtime(kernels, 2, precision);
    VocabularyLoss loss;
    EXPECT_NEAR(loss.forward(runtime.context(), example.view(), precision), plain.loss, loss_error);
    for (std::size_t row = 0; row < example.layer.rows; ++row) {
      const VocabularyRow& found = loss.rows()[row];
      EXPECT_NEAR(found.largest, example.logit(row, found.best), 100 * loss_error);
      for (std::size_t v = 0; v < example.layer.vocabulary; ++v)
        ASSERT_LE(example.logit(row, v), found.largest + 100 * loss_error);
    }
    Gradients gradients(example);
    loss.backward(runtime.context(), example.view(), precision, kScale, gradients.view());
    EXPECT_LE(distance(gradients.x, plain.x), gradient_error);
    EXPECT_LE(distance(gradients.weight, plain.weight), gradient_error);
    EXPECT_LE(distance(gradients.bias, plain.bias), gradient_error);
  }
}

constexpr std::size_t kTwoSlices = VocabularyLoss::kSlice + 37;

TEST(VocabularyLoss, IsTheCrossEntropyOfTheWholeMatrix) {
  for (const std::size_t vocabulary : {std::size_t{1}, std::size_t{61}, VocabularyLoss::kSlice,
                                       kTwoSlices, 2 * VocabularyLoss::kSlice + 1}) {
    SCOPED_TRACE(vocabulary);
    if (vocabulary == 1) continue;  // its gradient is 0
    expect_the_definition(Example(5, vocabulary, 12), Precision::kFloat32, 2e-6, 2e-6);
  }
}

// Operands are rounded to 8 bits.
TEST(VocabularyLoss, Bfloat16IsNear) {
  expect_the_definition(Example(6, kTwoSlices, 24), Precision::kBfloat16, 4e-3, 1e-2);
}

TEST(VocabularyLoss, OneTokenHasNoLoss) {
  Runtime runtime;
  Example example(3, 1, 8);
  VocabularyLoss loss;
  EXPECT_EQ(loss.forward(runtime.context(), example.view(), Precision::kFloat32), 0);
  Gradients gradients(example);
  loss.backward(runtime.context(), example.view(), Precision::kFloat32, 1, gradients.view());
  EXPECT_THAT(gradients.weight, ::testing::Each(::testing::FloatNear(0, 1e-6f)));
}

// Central differences of the loss itself, in both directions of the layer.
TEST(VocabularyLoss, GradientIsTheDerivative) {
  Runtime runtime;
  Example example(4, kTwoSlices, 8);
  VocabularyLoss loss;
  Gradients gradients(example);
  loss.forward(runtime.context(), example.view(), Precision::kFloat32);
  loss.backward(runtime.context(), example.view(), Precision::kFloat32, 1, gradients.view());
  const auto check = [&](std::vector<float>& values, std::span<const float> gradient,
                         const char* name) {
    // Along a direction with many parts, so that the difference stands out of f32.
    const std::vector<float> direction = random_values(values.size(), 9);
    const std::vector<float> before = values;
    constexpr double kStep = 1e-2;
    const auto at = [&](double step) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(before[i] + step * direction[i]);
      return loss.forward(runtime.context(), example.view(), Precision::kFloat32);
    };
    const double difference = (at(kStep) - at(-kStep)) / (2 * kStep);
    values = before;
    double expected = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      expected += static_cast<double>(gradient[i]) * direction[i];
    EXPECT_NEAR(difference, expected, 2e-3 * std::max(1.0, std::abs(expected))) << name;
  };
  check(example.x, gradients.x, "x");
  check(example.weight, gradients.weight, "weight");
  check(example.bias, gradients.bias, "bias");
}

TEST(VocabularyLoss, BitsDoNotDependOnThreads) {
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    Example example(41, kTwoSlices, 24);
    std::vector<Gradients> found;
    std::vector<double> losses;
    for (const int threads : {1, 3}) {
      Runtime runtime("", threads, Precision::kBfloat16);
      VocabularyLoss loss;
      losses.push_back(loss.forward(runtime.context(), example.view(), precision));
      loss.backward(runtime.context(), example.view(), precision, 1,
                    found.emplace_back(example).view());
    }
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_EQ(found[0].x, found[1].x);
    EXPECT_EQ(found[0].weight, found[1].weight);
    EXPECT_EQ(found[0].bias, found[1].bias);
  }
}

// Backward computes no logits that forward kept, and has the same bits.
TEST(VocabularyLoss, KeptLogitsHaveTheBitsOfThoseComputedAgain) {
  constexpr std::size_t kRows = 41, kSlices = 3, kVocabulary = kSlices * VocabularyLoss::kSlice + 5;
  constexpr std::size_t kSliceBytes = kRows * VocabularyLoss::kSlice * sizeof(float);
  Example example(kRows, kVocabulary, 24);
  const auto computed_again = [](const Profile& profile) {
    for (const Profile::Stage& stage : profile.stages())
      if (stage.part == "recompute") return stage.calls;
    return std::size_t{0};
  };
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    Runtime runtime("", 2, Precision::kBfloat16);
    std::vector<Gradients> found;
    std::size_t last_bytes = 0;
    for (const std::size_t kept : {std::size_t{0}, std::size_t{1}, kSlices}) {
      Profile profile;
      kernels::Context context = runtime.context();
      context.profile = &profile;
      VocabularyLoss loss;
      const std::size_t bytes = loss.reserve(kRows, kVocabulary, 24, precision, /*training=*/true,
                                             kept * kSliceBytes + kSliceBytes / 2);
      EXPECT_GT(bytes, last_bytes);
      last_bytes = bytes;
      loss.forward(context, example.view(), precision);
      loss.backward(context, example.view(), precision, 1, found.emplace_back(example).view());
      EXPECT_EQ(computed_again(profile), kSlices + 1 - kept);
      EXPECT_EQ(found.back().x, found.front().x);
      EXPECT_EQ(found.back().weight, found.front().weight);
      EXPECT_EQ(found.back().bias, found.front().bias);
    }
  }
}

TEST(VocabularyLoss, GradientsOfParametersAreAddedToAMicroBatch) {
  Runtime runtime;
  Example example(4, 61, 8);
  VocabularyLoss loss;
  Gradients first(example), second(example);
  loss.forward(runtime.context(), example.view(), Precision::kFloat32);
  loss.backward(runtime.context(), example.view(), Precision::kFloat32, 1, first.view());
  second.weight = first.weight;
  second.bias = first.bias;
  loss.backward(runtime.context(), example.view(), Precision::kFloat32, 1,
                second.view(/*accumulate=*/true));
  EXPECT_EQ(first.x, second.x);
  for (std::size_t i = 0; i < first.weight.size(); ++i)
    ASSERT_NEAR(second.weight[i], 2 * first.weight[i], 1e-6);
}

TEST(VocabularyLoss, NoRowHasNoLossAndNoGradient) {
  Runtime runtime;
  Example example(0, 61, 8);
  VocabularyLoss loss;
  EXPECT_EQ(loss.forward(runtime.context(), example.view(), Precision::kFloat32), 0);
  Gradients gradients(example);
  loss.backward(runtime.context(), example.view(), Precision::kFloat32, 1, gradients.view());
  EXPECT_THAT(gradients.weight, ::testing::Each(0));
  EXPECT_THAT(gradients.bias, ::testing::Each(0));
}

// A sum of 1e38 and more overflows only if the largest logit is not taken out of it.
TEST(VocabularyLoss, LargeLogitsDoNotOverflow) {
  Runtime runtime;
  Example example(2, kTwoSlices, 8);
  for (float& value : example.bias) value = 80;
  example.bias[kTwoSlices - 1] = 400;
  example.targets = {0, static_cast<std::int32_t>(kTwoSlices - 1)};
  VocabularyLoss loss;
  const double mean = loss.forward(runtime.context(), example.view(), Precision::kFloat32);
  EXPECT_NEAR(mean, 160, 8);
  EXPECT_EQ(loss.rows()[0].best, kTwoSlices - 1);
}

TEST(VocabularyLoss, RefusesTargetsOutsideTheVocabulary) {
  Runtime runtime;
  Example example(2, 61, 8);
  VocabularyLoss loss;
  example.targets[1] = 61;
  EXPECT_THAT([&] { loss.forward(runtime.context(), example.view(), Precision::kFloat32); },
              ThrowsMessage<InvalidArgument>(HasSubstr("row 1 has the target 61")));
  example.targets[1] = -100;
  EXPECT_THAT([&] { loss.forward(runtime.context(), example.view(), Precision::kFloat32); },
              ThrowsMessage<InvalidArgument>(HasSubstr("row 1 has the target -100")));
}

}  // namespace
}  // namespace tandem::nn
