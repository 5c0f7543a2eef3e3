// Poolings against their formulas in double precision, and their gradients.
#include "tandem/models/heads/pooling_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tandem/core/error.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::infer;
using models::testing::TestContext;
using models::testing::TestModel;
using models::testing::tiny_batch;
using models::testing::tiny_config;

constexpr std::size_t kWidth = 4;
const std::vector<Pooling> kAll = {Pooling::kCls,          Pooling::kMax,
                                   Pooling::kMean,         Pooling::kMeanSqrtLen,
                                   Pooling::kWeightedMean, Pooling::kLastToken};

// Texts of 5, 1 and 3 tokens; the last one has two rows of padding behind them.
const std::vector<std::uint32_t> kPoolRowBegin = {0, 5, 6, 11};
const std::vector<std::uint32_t> kPoolKeyCount = {5, 1, 3};
const kernels::Sequences kPoolSequences{kPoolRowBegin, kPoolKeyCount, {}};
// Tokens of prompts: of the second text all count as such, also one that was cut off.
const std::vector<std::uint32_t> kNoPrompts = {0, 0, 0}, kPrompts = {2, 2, 1};

std::vector<float> random_pooled(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

double expected(Pooling pooling, std::span<const float> hidden, std::size_t text,
                std::size_t column, const std::vector<std::uint32_t>& prompts) {
  const std::size_t n = kPoolKeyCount[text], begin = prompts[text];
  const auto h = [&](std::size_t i) {
    return static_cast<double>(hidden[(kPoolRowBegin[text] + i) * kWidth + column]);
  };
  if (begin >= n) return pooling == Pooling::kCls ? h(0) : 0;
  double sum = 0, weighted = 0, weights = 0, largest = h(begin);
  for (std::size_t i = begin; i < n; ++i) {
    sum += h(i);
    weighted += static_cast<double>(i + 1) * h(i);
    weights += static_cast<double>(i + 1);
    largest = std::max(largest, h(i));
  }
  switch (pooling) {
    case Pooling::kCls:
      return h(begin);
    case Pooling::kMax:
      return largest;
    case Pooling::kMean:
      return sum / static_cast<double>(n - begin);
    case Pooling::kMeanSqrtLen:
      return sum / std::sqrt(static_cast<double>(n - begin));
    case Pooling::kWeightedMean:
      return weighted / weights;
    case Pooling::kLastToken:
      return h(n - 1);
  }
  return 0;
}

nn::Pass pool_pass(const kernels::Context& context, const std::vector<std::uint32_t>& prompts) {
  return {context, {}, kPoolSequences, {}, {}, {}, prompts};
}

class PoolingHeadTest : public ::testing::Test {
 protected:
  std::unique_ptr<Head> head(const std::vector<Pooling>& poolings) {
    ModelConfig config = tiny_config(kBert);
    config.hidden_size = kWidth;
    nn::ParameterLayout layout;
    auto made = make_pooling_head(poolings, /*include_prompt=*/true, config, layout);
    EXPECT_EQ(layout.size(), 0u);
    return made;
  }
  std::vector<float> forward(const Head& head, std::span<const float> hidden, int threads = 2,
                             const std::vector<std::uint32_t>& prompts = {}) {
    TestContext context(threads);
    const kernels::Context kernel_context = context;
    std::vector<float> logits(head.num_logits(11, 3));
    head.forward(pool_pass(kernel_context, prompts), hidden, {}, logits);
    return logits;
  }
};

TEST_F(PoolingHeadTest, ValuesAreTheFormulas) {
  const auto hidden = random_pooled(11 * kWidth, 1);
  EXPECT_EQ(forward(*head(kAll), hidden), forward(*head(kAll), hidden, 2, kNoPrompts));
  for (const auto& prompts : {kNoPrompts, kPrompts}) {
    const auto logits = forward(*head(kAll), hidden, 2, prompts);
    ASSERT_EQ(logits.size(), 3 * kAll.size() * kWidth);
    for (std::size_t text = 0; text < 3; ++text) {
      for (std::size_t p = 0; p < kAll.size(); ++p) {
        for (std::size_t c = 0; c < kWidth; ++c)
          EXPECT_NEAR(logits[(text * kAll.size() + p) * kWidth + c],
                      expected(kAll[p], hidden, text, c, prompts), 1e-6)
              << "text " << text << ", pooling " << p << ", column " << c;
      }
    }
  }
}

class PoolingGradients : public PoolingHeadTest,
                         public ::testing::WithParamInterface<std::vector<std::uint32_t>> {};

INSTANTIATE_TEST_SUITE_P(Prompts, PoolingGradients, ::testing::Values(kNoPrompts, kPrompts));

TEST_P(PoolingGradients, AreThoseOfTheFormulas) {
  auto hidden = random_pooled(11 * kWidth, 2);
  const auto made = head(kAll);
  const auto grad_logits = random_pooled(3 * kAll.size() * kWidth, 3);
  std::vector<float> grad(hidden.size(), 7.0f);  // overwritten, the padding with 0
  TestContext context;
  const kernels::Context kernel_context = context;
  made->backward(pool_pass(kernel_context, GetParam()), hidden, {}, grad_logits, grad, {});
  for (std::size_t row = 0; row < 11; ++row) {
    const std::size_t text = row < 5 ? 0 : row < 6 ? 1 : 2;
    const std::size_t token = row - kPoolRowBegin[text];
    for (std::size_t c = 0; c < kWidth; ++c) {
      double sum = 0;  // central differences of the formulas
      for (std::size_t p = 0; token < kPoolKeyCount[text] && p < kAll.size(); ++p) {
        auto moved = hidden;
        constexpr float kStep = 1.0f / 1024;
        moved[row * kWidth + c] += kStep;
        const double above = expected(kAll[p], moved, text, c, GetParam());
        moved[row * kWidth + c] -= 2 * kStep;
        sum += grad_logits[(text * kAll.size() + p) * kWidth + c] *
               (above - expected(kAll[p], moved, text, c, GetParam())) / (2 * kStep);
      }
      EXPECT_NEAR(grad[row * kWidth + c], sum, 1e-4) << "row " << row << ", column " << c;
    }
  }
}

TEST_F(PoolingHeadTest, BitsDoNotDependOnThreads) {
  const auto hidden = random_pooled(11 * kWidth, 4);
  EXPECT_EQ(forward(*head(kAll), hidden, 1), forward(*head(kAll), hidden, 3));
}

TEST_F(PoolingHeadTest, NeedsAPooling) { EXPECT_THROW(head({}), InvalidArgument); }

// The first rows alone give the bits that they have among all rows.
TEST_F(PoolingHeadTest, TheFirstTokenAloneIsThatOfAllPoolings) {
  const ModelConfig config = tiny_config(kBert);
  const auto with = [&](std::vector<Pooling> poolings) {
    return TestModel(config, 7, std::bind_front(make_pooling_head, std::move(poolings), true));
  };
  TestContext context;
  const auto batch = tiny_batch(false);
  const auto alone = infer(context, with({Pooling::kCls}), nn::Precision::kFloat32, batch);
  const auto both =
      infer(context, with({Pooling::kCls, Pooling::kMean}), nn::Precision::kFloat32, batch);
  for (std::size_t text = 0; text < 3; ++text) {
    for (std::size_t c = 0; c < config.hidden_size; ++c)
      EXPECT_EQ(alone[text * config.hidden_size + c], both[2 * text * config.hidden_size + c]);
  }
}

// Behind a prompt the first token is not a first row, so the encoder computes all rows.
TEST_F(PoolingHeadTest, TheFirstTokenBehindAPromptIsThatOfAllPoolings) {
  const ModelConfig config = tiny_config(kBert);
  const auto with = [&](std::vector<Pooling> poolings, bool include_prompt) {
    return TestModel(config, 7,
                     std::bind_front(make_pooling_head, std::move(poolings), include_prompt));
  };
  TestContext context;
  auto batch = tiny_batch(false);
  batch.unpooled = {2, 0, 1};
  const auto of = [&](const TestModel& model) {
    return infer(context, model, nn::Precision::kFloat32, batch);
  };
  const auto alone = of(with({Pooling::kCls}, /*include_prompt=*/false));
  const auto both = of(with({Pooling::kCls, Pooling::kMean}, /*include_prompt=*/false));
  for (std::size_t text = 0; text < 3; ++text) {
    for (std::size_t c = 0; c < config.hidden_size; ++c)
      EXPECT_EQ(alone[text * config.hidden_size + c], both[2 * text * config.hidden_size + c]);
  }
  EXPECT_THROW(of(with({Pooling::kCls}, /*include_prompt=*/true)), InvalidArgument);
}

}  // namespace
}  // namespace tandem::models
