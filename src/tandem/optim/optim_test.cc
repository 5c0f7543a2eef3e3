#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/core/error.h"
#include "tandem/optim/adamw.h"
#include "tandem/optim/schedule.h"

namespace tandem::optim {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// --- AdamW against a transcription of torch.optim.adamw._single_tensor_adamw in double precision ---

struct DoubleAdamW {
  AdamWOptions options;
  std::vector<double> w, m, v;

  void step(std::size_t i, double t, double lr, double gradient, double weight_decay) {
    w[i] *= 1 - lr * weight_decay;
    m[i] = m[i] + (gradient - m[i]) * (1 - options.beta1);
    v[i] = v[i] * options.beta2 + (1 - options.beta2) * gradient * gradient;
    const double step_size = lr / (1 - std::pow(options.beta1, t));
    const double denominator =
        std::sqrt(v[i]) / std::sqrt(1 - std::pow(options.beta2, t)) + options.epsilon;
    w[i] -= step_size * m[i] / denominator;
  }
};

class AdamWTest : public ::testing::Test {
 protected:
  AdamWTest() {
    layout_.add("weight", {50}, nn::ParameterKind::kWeight);
    layout_.add("bias", {7}, nn::ParameterKind::kBias);
    layout_.add("fixed", {20}, nn::ParameterKind::kEmbedding, /*trainable=*/false);
    layout_.add("table", {33}, nn::ParameterKind::kEmbedding);
    weights_.assign(layout_.size(), 0);
    for (const nn::ParameterSpec& parameter : layout_.parameters()) {
      for (std::size_t i = parameter.offset; i < parameter.end(); ++i) {
        weights_[i] = std::sin(static_cast<float>(i)) * 0.1f;
      }
    }
    bf16_.resize(layout_.size());
    exp_avg_.assign(layout_.size(), 0);
    exp_avg_sq_.assign(layout_.size(), 0);
    gradients_.assign(layout_.size(), 0);
  }

  void draw_gradients(int step) {
    for (const nn::ParameterSpec& parameter : layout_.parameters()) {
      for (std::size_t i = parameter.offset; i < parameter.end(); ++i) {
        gradients_[i] = std::cos(static_cast<float>(i * 3 + step * 17)) *
                        std::pow(10.0f, -static_cast<float>(i % 6));
      }
    }
  }
  ParameterArenas arenas() { return {weights_, bf16_, gradients_, exp_avg_, exp_avg_sq_}; }

  nn::ParameterLayout layout_;
  std::vector<float> weights_, gradients_, exp_avg_, exp_avg_sq_;
  std::vector<bfloat16> bf16_;
  ThreadPool threads_{2};
  kernels::KernelSet kernels_ = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch_{2};
  kernels::Context context_{threads_, kernels_, scratch_};
};

TEST_F(AdamWTest, MatchesTorchFormula) {
  const AdamWOptions options = {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1};
  const AdamW optimizer(options, layout_);
  DoubleAdamW expected{options,
                       {weights_.begin(), weights_.end()},
                       std::vector<double>(weights_.size()),
                       std::vector<double>(weights_.size())};
  for (int t = 1; t <= 20; ++t) {
    const double lr = 1e-2 / t;
    draw_gradients(t);
    for (const nn::ParameterSpec& parameter : layout_.parameters()) {
      if (!parameter.trainable) continue;
      for (std::size_t i = parameter.offset; i < parameter.end(); ++i) {
        expected.step(i, t, lr, 0.5 * gradients_[i],
                      parameter.weight_decay ? options.weight_decay : 0);
      }
    }
    optimizer.step(
        context_,
        {.step = static_cast<std::uint64_t>(t), .learning_rate = lr, .gradient_scale = 0.5},
        arenas(), 0, layout_.size());
  }
  // Per step a handful of f32 roundings of w (|w| <= 0.2) and of an update of at most lr: 20 steps
  // · 2 roundings · 2^-24 · 0.2.
  for (const nn::ParameterSpec& parameter : layout_.parameters()) {
    for (std::size_t i = parameter.offset; i < parameter.end(); ++i) {
      EXPECT_NEAR(weights_[i], expected.w[i], 5e-7) << parameter.name;
      if (parameter.trainable) {
        EXPECT_EQ(bf16_[i], to_bfloat16(weights_[i])) << parameter.name;
      }
    }
  }
}

TEST_F(AdamWTest, LeavesFixedParametersAndGapsAlone) {
  const std::vector<float> before = weights_;
  draw_gradients(1);
  AdamW({.weight_decay = 0.1}, layout_)
      .step(context_, {.step = 1, .learning_rate = 0.1}, arenas(), 0, layout_.size());
  const nn::ParameterSpec& fixed = *layout_.find("fixed");
  for (std::size_t i = fixed.offset; i < fixed.end(); ++i) EXPECT_EQ(weights_[i], before[i]);
  EXPECT_NE(weights_[0], before[0]);
  EXPECT_EQ(weights_[50], 0.0f);  // the gap behind "weight"
}

// Ranks update slices; together they are one update of everything, to the bit.
TEST_F(AdamWTest, SlicesAreTheWhole) {
  AdamWTest::draw_gradients(1);
  const AdamW optimizer({.weight_decay = 0.01}, layout_);
  const AdamWStep step = {.step = 1, .learning_rate = 1e-3};
  std::vector<float> weights = weights_, m = exp_avg_, v = exp_avg_sq_;
  optimizer.step(context_, step, {weights, {}, gradients_, m, v}, 0, layout_.size());
  for (std::size_t begin = 0; begin < layout_.size(); begin += 37) {
    optimizer.step(context_, step, arenas(), begin, std::min(begin + 37, layout_.size()));
  }
  EXPECT_EQ(weights, weights_);
  EXPECT_EQ(m, exp_avg_);
  EXPECT_EQ(v, exp_avg_sq_);
}

TEST_F(AdamWTest, RefusesOptionsOutOfRange) {
  EXPECT_THAT(
      [&] { AdamW({.beta1 = 1.0}, layout_); },
      ThrowsMessage<ConfigError>(HasSubstr("--adam_beta1 is 1; expected a number in [0, 1)")));
  EXPECT_THAT([&] { AdamW({.beta2 = -0.1}, layout_); },
              ThrowsMessage<ConfigError>(HasSubstr("--adam_beta2")));
  EXPECT_THAT([&] { AdamW({.epsilon = NAN}, layout_); },
              ThrowsMessage<ConfigError>(HasSubstr("--adam_epsilon")));
  EXPECT_THAT([&] { AdamW({.weight_decay = -1}, layout_); },
              ThrowsMessage<ConfigError>(HasSubstr("--weight_decay")));
}

// --- Schedules at known points ---

TEST(Schedule, LinearGoesDownToZero) {
  const Schedule schedule = {ScheduleType::kLinear, 744, 0};
  EXPECT_EQ(schedule.factor(0), 1.0);
  EXPECT_EQ(schedule.factor(1), 743.0 / 744);
  EXPECT_EQ(schedule.factor(743), 1.0 / 744);
  EXPECT_EQ(schedule.factor(744), 0.0);
  EXPECT_EQ(schedule.factor(10'000), 0.0);
}

TEST(Schedule, LinearWarmsUp) {
  const Schedule schedule = {ScheduleType::kLinear, 100, 20};
  EXPECT_EQ(schedule.factor(0), 0.0);
  EXPECT_EQ(schedule.factor(10), 0.5);
  EXPECT_EQ(schedule.factor(20), 1.0);
  EXPECT_EQ(schedule.factor(60), 0.5);
  const Schedule only_warmup = {ScheduleType::kLinear, 5, 5};
  EXPECT_EQ(only_warmup.factor(4), 0.8);
  EXPECT_EQ(only_warmup.factor(5), 0.0);
}

TEST(Schedule, ConstantAndConstantWithWarmup) {
  EXPECT_EQ((Schedule{ScheduleType::kConstant, 100, 20}.factor(0)), 1.0);
  EXPECT_EQ((Schedule{ScheduleType::kConstantWithWarmup, 100, 20}.factor(5)), 0.25);
  EXPECT_EQ((Schedule{ScheduleType::kConstantWithWarmup, 100, 20}.factor(99)), 1.0);
}

TEST(Schedule, Names) {
  for (const char* name : {"linear", "constant", "constant_with_warmup"}) {
    EXPECT_EQ(to_string(parse_schedule_type(name)), name);
  }
  EXPECT_THAT([] { parse_schedule_type("cosine"); },
              ThrowsMessage<ConfigError>(HasSubstr("--lr_scheduler_type is cosine; expected one of "
                                                   "linear, constant, constant_with_warmup")));
}

TEST(Schedule, WarmupStepsWinOverTheRatio) {
  EXPECT_EQ(resolve_warmup_steps(0, 0.0, 744), 0u);
  EXPECT_EQ(resolve_warmup_steps(0, 0.1, 744), 75u);
  EXPECT_EQ(resolve_warmup_steps(10, 0.1, 744), 10u);
}

TEST(ClipFactor, ScalesOnlyLongGradients) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / 4.000001);
  EXPECT_LT(clip_factor(1.0, 1.0), 1.0);  // torch's 1e-6 counts
  EXPECT_EQ(clip_factor(100.0, 0.0), 1.0);
  EXPECT_TRUE(std::isnan(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0)));
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0), 0.0);
}

}  // namespace
}  // namespace tandem::optim
