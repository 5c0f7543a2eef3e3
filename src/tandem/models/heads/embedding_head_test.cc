// Embeddings of the training head against apply_modules(), and gradients against central
// differences.
#include "tandem/models/heads/embedding_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::TestContext;
using models::testing::tiny_config;

constexpr std::size_t kHidden = 4;
constexpr std::size_t kTexts = 3;
// Texts of 5, 1 and 3 tokens.
const std::vector<std::uint32_t> kRowBegin = {0, 5, 6, 9};
const std::vector<std::uint32_t> kKeyCount = {5, 1, 3};
const kernels::Sequences kSequences{kRowBegin, kKeyCount, {}};

std::vector<float> random_values(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

DenseModule dense(std::size_t in, std::size_t out, DenseActivation activation, bool bias) {
  DenseModule made;
  made.in_features = in;
  made.out_features = out;
  made.activation = activation;
  made.weight = random_values(in * out, static_cast<unsigned>(in * 31 + out));
  if (bias) made.bias = random_values(out, static_cast<unsigned>(out));
  return made;
}

struct Case {
  const char* name;
  std::vector<Pooling> poolings;
  std::vector<EmbeddingModule> modules;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

SentenceFiles files_of(const Case& one) {
  SentenceFiles files;
  files.poolings = one.poolings;
  files.modules = one.modules;
  return files;
}

std::vector<Case> cases() {
  return {{"PoolingAlone", {Pooling::kMean}, {}},
          {"Normalize", {Pooling::kMean}, {NormalizeModule{}}},
          {"DenseTanh", {Pooling::kCls}, {dense(4, 3, DenseActivation::kTanh, true)}},
          {"DenseWithoutBias",
           {Pooling::kMax, Pooling::kMean},
           {dense(8, 5, DenseActivation::kIdentity, false)}},
          {"TwoDenseAndNormalize",
           {Pooling::kMeanSqrtLen, Pooling::kWeightedMean, Pooling::kLastToken},
           {dense(12, 5, DenseActivation::kGelu, true), NormalizeModule{},
            dense(5, 6, DenseActivation::kSigmoid, true), NormalizeModule{}}},
          {"Relu", {Pooling::kMean}, {dense(4, 70, DenseActivation::kRelu, true)}}};
}

class EmbeddingHeadTest : public ::testing::TestWithParam<Case> {
 protected:
  EmbeddingHeadTest() {
    ModelConfig config = tiny_config(kBert);
    config.hidden_size = kHidden;
    head_ = make_embedding_head(files_of(GetParam()), config, layout_);
    weights_.resize(layout_.size());
    for (std::size_t i = 0; i < GetParam().modules.size(); ++i) {
      const auto* module = std::get_if<DenseModule>(&GetParam().modules[i]);
      if (module == nullptr) continue;
      put(module_parameter(i, "linear.weight"), module->weight);
      if (!module->bias.empty()) put(module_parameter(i, "linear.bias"), module->bias);
    }
  }

  std::vector<float> forward(std::span<const float> hidden, int threads = 2) {
    TestContext context(threads);
    const kernels::Context kernel_context = context;
    memory_.resize(head_->memory(kRowBegin.back(), kTexts, true));
    std::vector<float> logits(head_->num_logits(kRowBegin.back(), kTexts));
    head_->forward({kernel_context, {weights_, {}}, kSequences, {}}, hidden, memory_, logits);
    return logits;
  }
  double loss(std::span<const float> hidden, std::span<const float> factors) {
    const std::vector<float> logits = forward(hidden);
    double sum = 0;
    for (std::size_t k = 0; k < logits.size(); ++k)
      sum += static_cast<double>(factors[k]) * logits[k];
    return sum;
  }

  nn::ParameterLayout layout_;
  std::unique_ptr<Head> head_;
  std::vector<float> weights_, memory_;

 private:
  void put(const std::string& name, std::span<const float> values) {
    const nn::ParameterSpec* parameter = layout_.find(name);
    ASSERT_NE(parameter, nullptr) << name;
    ASSERT_EQ(parameter->size, values.size());
    std::copy(values.begin(), values.end(),
              weights_.begin() + static_cast<std::ptrdiff_t>(parameter->offset));
  }
};

INSTANTIATE_TEST_SUITE_P(All, EmbeddingHeadTest, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(EmbeddingHeadTest, EmbeddingsAreThoseOfTheModules) {
  const auto hidden = random_values(kRowBegin.back() * kHidden, 1);
  nn::ParameterLayout none;
  ModelConfig config = tiny_config(kBert);
  config.hidden_size = kHidden;
  const auto pooling = make_pooling_head(GetParam().poolings, true, config, none);
  TestContext context;
  const kernels::Context kernel_context = context;
  std::vector<float> pooled(pooling->num_logits(kRowBegin.back(), kTexts));
  pooling->forward({kernel_context, {}, kSequences, {}}, hidden, {}, pooled);
  const std::vector<float> logits = forward(hidden);
  const std::size_t from = pooled.size() / kTexts, to = logits.size() / kTexts;
  for (std::size_t text = 0; text < kTexts; ++text) {
    std::vector<float> expected(pooled.begin() + static_cast<std::ptrdiff_t>(text * from),
                                pooled.begin() + static_cast<std::ptrdiff_t>((text + 1) * from));
    apply_modules(GetParam().modules, expected);
    ASSERT_EQ(expected.size(), to);
    for (std::size_t c = 0; c < to; ++c) EXPECT_EQ(logits[text * to + c], expected[c]) << c;
  }
}

TEST_P(EmbeddingHeadTest, GradientsAreCentralDifferences) {
  auto hidden = random_values(kRowBegin.back() * kHidden, 2);
  const auto factors = random_values(head_->num_logits(kRowBegin.back(), kTexts), 3);
  forward(hidden);
  std::vector<float> grad_hidden(hidden.size(), 7.0f), grads(layout_.size(), 1.0f);
  TestContext context;
  const kernels::Context kernel_context = context;
  head_->backward({kernel_context, {weights_, {}}, kSequences, {}}, hidden, memory_, factors,
                  grad_hidden, {grads, /*accumulate=*/true});
  constexpr float kStep = 1.0f / 512;
  const auto difference = [&](float& value) {
    const float before = value;
    value = before + kStep;
    const double above = loss(hidden, factors);
    value = before - kStep;
    const double below = loss(hidden, factors);
    value = before;
    return (above - below) / (2 * kStep);
  };
  for (std::size_t i = 0; i < hidden.size(); ++i)
    EXPECT_NEAR(grad_hidden[i], difference(hidden[i]), 2e-3) << "hidden " << i;
  for (const nn::ParameterSpec& parameter : layout_.parameters()) {
    for (std::size_t i = parameter.offset; i < parameter.end(); ++i)
      EXPECT_NEAR(grads[i] - 1.0f, difference(weights_[i]), 2e-3) << parameter.name << " " << i;
  }
}

TEST_P(EmbeddingHeadTest, BitsDoNotDependOnThreads) {
  const auto hidden = random_values(kRowBegin.back() * kHidden, 4);
  EXPECT_EQ(forward(hidden, 1), forward(hidden, 3));
}

// A constant vector has no direction to lose: the gradient along x is 0.
TEST(EmbeddingHead, NormalizeOfAZeroVectorIsFinite) {
  ModelConfig config = tiny_config(kBert);
  config.hidden_size = kHidden;
  nn::ParameterLayout layout;
  const auto head =
      make_embedding_head(files_of({"", {Pooling::kMean}, {NormalizeModule{}}}), config, layout);
  const std::vector<float> hidden(kRowBegin.back() * kHidden, 0.0f);
  std::vector<float> memory(head->memory(kRowBegin.back(), kTexts, true));
  std::vector<float> logits(head->num_logits(kRowBegin.back(), kTexts), 1.0f);
  std::vector<float> grad(hidden.size());
  TestContext context;
  const kernels::Context kernel_context = context;
  const nn::Pass pass{kernel_context, {}, kSequences, {}};
  head->forward(pass, hidden, memory, logits);
  EXPECT_EQ(logits, std::vector<float>(logits.size(), 0.0f));
  head->backward(pass, hidden, memory, std::vector<float>(logits.size(), 1e-20f), grad, {});
  for (const float value : grad) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace tandem::models
