#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>

#include "tandem/core/error.h"
#include "tandem/optim/optimizer.h"

namespace tandem::optim {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// --- AdamW against a transcription of torch.optim.adamw._single_tensor_adamw in double precision
// ---

struct DoubleAdamW {
  OptimizerOptions options;
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
    bf16_.resize(layout_.bf16_size());
    state_.assign(2 * layout_.size(), 0);
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
  ParameterArenas arenas() { return {weights_, bf16_, gradients_, state_}; }

  nn::ParameterLayout layout_;
  std::vector<float> weights_, gradients_, state_;
  std::vector<bfloat16> bf16_;
  ThreadPool threads_{2};
  kernels::KernelSet kernels_ = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch_{2};
  kernels::Context context_{threads_, kernels_, scratch_};
};

TEST_F(AdamWTest, MatchesTorchFormula) {
  const OptimizerOptions options = {
      .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6};
  const auto optimizer = make_optimizer(options, layout_);
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
    optimizer->step(
        context_,
        {.step = static_cast<std::uint64_t>(t), .learning_rate = lr, .gradient_scale = 0.5},
        arenas(), 0, layout_.size());
  }
  // Per step a handful of f32 roundings of w (|w| <= 0.2) and of an update of at most lr: 20 steps
  // · 2 roundings · 2^-24 · 0.2.
  for (const nn::ParameterSpec& parameter : layout_.parameters()) {
    for (std::size_t i = parameter.offset; i < parameter.end(); ++i) {
      EXPECT_NEAR(weights_[i], expected.w[i], 5e-7) << parameter.name;
      if (i < bf16_.size()) {
        EXPECT_EQ(bf16_[i], to_bfloat16(weights_[i])) << parameter.name;
      }
    }
  }
}

TEST_F(AdamWTest, LeavesFixedParametersAndGapsAlone) {
  const std::vector<float> before = weights_;
  draw_gradients(1);
  make_optimizer({.weight_decay = 0.1}, layout_)
      ->step(context_, {.step = 1, .learning_rate = 0.1}, arenas(), 0, layout_.size());
  const nn::ParameterSpec& fixed = *layout_.find("fixed");
  for (std::size_t i = fixed.offset; i < fixed.end(); ++i) EXPECT_EQ(weights_[i], before[i]);
  EXPECT_NE(weights_[0], before[0]);
  EXPECT_EQ(weights_[50], 0.0f);  // the gap behind "weight"
}

// The copy ends where products end, which may be inside a run of equal weight decay.
TEST_F(AdamWTest, TheCopyMayEndAnywhere) {
  draw_gradients(1);
  const auto optimizer = make_optimizer({.weight_decay = 0.1}, layout_);
  const OptimizerStep step = {.step = 1, .learning_rate = 0.1};
  std::vector<float> whole = weights_, state = state_;
  optimizer->step(context_, step, {whole, {}, gradients_, state}, 0, layout_.size());
  for (const std::size_t copied : {std::size_t{1}, std::size_t{30}, layout_.size()}) {
    std::vector<float> weights = weights_;
    state = state_;
    std::vector<bfloat16> copy(copied);
    optimizer->step(context_, step, {weights, copy, gradients_, state}, 0, layout_.size());
    EXPECT_EQ(weights, whole) << copied;
    for (const nn::ParameterSpec& parameter : layout_.parameters()) {
      if (!parameter.trainable) continue;
      for (std::size_t i = parameter.offset; i < std::min(copied, parameter.end()); ++i) {
        EXPECT_EQ(copy[i], to_bfloat16(whole[i])) << i << " of " << copied;
      }
    }
  }
}

// Ranks update slices; together they are one update of everything, to the bit, on any number of
// threads. Adafactor's ranks update whole parameters.
TEST_F(AdamWTest, SlicesAndThreadsAreTheWhole) {
  ThreadPool one_thread(1);
  kernels::Scratch scratch(1);
  for (const OptimizerName name :
       {OptimizerName::kAdamwTorch, OptimizerName::kAdamwHf, OptimizerName::kSgd,
        OptimizerName::kAdagrad, OptimizerName::kAdafactor}) {
    const auto optimizer =
        make_optimizer({.name = name, .weight_decay = 0.01, .momentum = 0.9}, layout_);
    std::vector<float> whole = weights_, cut = weights_;
    std::vector<float> whole_state(optimizer->state_elements()), cut_state = whole_state;
    for (std::uint64_t t = 1; t <= 3; ++t) {
      draw_gradients(static_cast<int>(t));
      const OptimizerStep step = {.step = t, .learning_rate = 1e-3};
      optimizer->step(context_, step, {whole, {}, gradients_, whole_state}, 0, layout_.size());
      for (std::size_t begin = 0; begin < layout_.size(); begin += 37) {
        optimizer->step({one_thread, kernels_, scratch}, step, {cut, {}, gradients_, cut_state},
                        begin, std::min(begin + 37, layout_.size()));
      }
    }
    EXPECT_NE(whole, weights_) << to_string(name);
    EXPECT_EQ(whole, cut) << to_string(name);
    EXPECT_EQ(whole_state, cut_state) << to_string(name);
  }
}

// Keeps every announced range, or refuses everything.
class KeepingGuard : public UpdateGuard {
 public:
  explicit KeepingGuard(bool refuses) : refuses_(refuses) {}
  std::size_t begin(int /*thread*/, const UpdatePiece& piece) override {
    const std::lock_guard lock(mutex_);
    seen_.insert(piece.index);
    for (const std::span<float> values : piece.overwritten)
      kept_.emplace_back(values, std::vector<float>(values.begin(), values.end()));
    return refuses_ ? piece.elements : 0;
  }
  kernels::UndoLog undo_log(int thread) override {
    Log& log = logs_[static_cast<std::size_t>(thread)];
    return {.values = log.values.data(), .word = &log.word};
  }
  void keep_whole(int /*thread*/, const UpdatePiece& piece) override {
    const std::lock_guard lock(mutex_);
    whole_.insert(piece.index);
  }
  void done(int /*thread*/, const UpdatePiece& piece) override {
    const std::lock_guard lock(mutex_);
    done_.insert(piece.index);
  }
  void put_back() {
    for (const auto& [range, values] : kept_)
      std::copy(values.begin(), values.end(), range.begin());
  }
  const std::set<std::size_t>& seen() const { return seen_; }
  const std::set<std::size_t>& kept_whole() const { return whole_; }
  const std::set<std::size_t>& finished() const { return done_; }

 private:
  bool refuses_;
  std::mutex mutex_;
  std::set<std::size_t> seen_, whole_, done_;
  struct Log {
    std::vector<float> values = std::vector<float>(2 * kernels::UndoLog::kHalf);
    std::uint64_t word = 0;
  };
  std::vector<Log> logs_ = std::vector<Log>(8);  // by thread
  std::vector<std::pair<std::span<float>, std::vector<float>>> kept_;
};

// The guard is called before every overwrite of an update, and its refusal prevents the overwrite.
TEST_F(AdamWTest, AGuardCanUndoAndRefuse) {
  nn::ParameterLayout layout;
  layout.add("weight", {300, 100}, nn::ParameterKind::kWeight);
  layout.add("bias", {300}, nn::ParameterKind::kBias);
  layout.add("table", {100, 200}, nn::ParameterKind::kEmbedding);
  const std::vector<float> before(layout.size(), 0.5f), gradients(layout.size(), 0.25f);
  for (const OptimizerName name :
       {OptimizerName::kAdamwTorch, OptimizerName::kAdamwHf, OptimizerName::kSgd,
        OptimizerName::kAdagrad, OptimizerName::kAdafactor}) {
    const auto optimizer = make_optimizer({.name = name, .momentum = 0.9}, layout);
    const std::vector<float> state_before(optimizer->state_elements(), 0.125f);
    const auto update = [&](UpdateGuard* guard, std::vector<float>& weights,
                            std::vector<float>& state) {
      optimizer->step(context_, {.step = 3, .learning_rate = 1e-3}, {weights, {}, gradients, state},
                      0, layout.size(), guard);
    };
    std::vector<float> plain = before, plain_state = state_before;
    update(nullptr, plain, plain_state);
    std::vector<float> weights = before, state = state_before;
    KeepingGuard keeping(/*refuses=*/false);
    update(&keeping, weights, state);
    EXPECT_EQ(weights, plain) << to_string(name);
    EXPECT_EQ(state, plain_state) << to_string(name);
    EXPECT_EQ(keeping.seen().size(), optimizer->pieces().count) << to_string(name);
    EXPECT_EQ(keeping.finished(), keeping.seen()) << to_string(name);
    EXPECT_EQ(keeping.kept_whole().size(),
              optimizer->pieces().largest_whole > 0 ? keeping.seen().size() : 0u);
    keeping.put_back();
    EXPECT_EQ(weights, before) << to_string(name);
    EXPECT_EQ(state, state_before) << to_string(name);
    KeepingGuard refusing(/*refuses=*/true);
    update(&refusing, weights, state);
    EXPECT_EQ(weights, before) << to_string(name);
    EXPECT_EQ(state, state_before) << to_string(name);
  }
}

TEST_F(AdamWTest, StateTensorsAreWhatTorchKeeps) {
  const auto names = [&](OptimizerOptions options) {
    std::vector<std::string> found;
    const auto optimizer = make_optimizer(options, layout_);
    for (const StateTensor& tensor : optimizer->state_tensors()) {
      EXPECT_LE(tensor.offset + tensor.size, optimizer->state_elements());
      if (tensor.name.ends_with(".weight") || tensor.name.ends_with(".bias"))
        found.push_back(tensor.name);
    }
    return found;
  };
  EXPECT_THAT(names({}), ::testing::ElementsAre("exp_avg.weight", "exp_avg_sq.weight",
                                                "exp_avg.bias", "exp_avg_sq.bias"));
  EXPECT_THAT(names({.name = OptimizerName::kSgd}), ::testing::IsEmpty());
  EXPECT_THAT(names({.name = OptimizerName::kSgd, .momentum = 0.9}),
              ::testing::ElementsAre("momentum_buffer.weight", "momentum_buffer.bias"));
  EXPECT_THAT(names({.name = OptimizerName::kAdagrad}),
              ::testing::ElementsAre("sum.weight", "sum.bias"));
}

TEST(OptimizerArguments, AreReadAndCheckedForTheOptimizer) {
  OptimizerOptions options = {.name = OptimizerName::kSgd};
  parse_optimizer_arguments(" momentum=0.9, nesterov=True", options);
  EXPECT_EQ(options.momentum, 0.9);
  EXPECT_TRUE(options.nesterov);
  const auto message = [](OptimizerName name, const char* text) {
    return [=] {
      OptimizerOptions refused = {.name = name};
      parse_optimizer_arguments(text, refused);
      refused.validate();
    };
  };
  EXPECT_THAT(message(OptimizerName::kSgd, "momentum"),
              ThrowsMessage<ConfigError>(HasSubstr("'momentum' is not of the form key=value")));
  EXPECT_THAT(message(OptimizerName::kSgd, "momentum=much"),
              ThrowsMessage<ConfigError>(HasSubstr("momentum is 'much', expected a number")));
  EXPECT_THAT(message(OptimizerName::kAdagrad, "momentum=1"),
              ThrowsMessage<ConfigError>(
                  HasSubstr("adagrad has no setting 'momentum'; it has lr_decay, eps")));
  EXPECT_THAT(message(OptimizerName::kAdamwTorch, "beta1=1"),
              ThrowsMessage<ConfigError>(HasSubstr("--adam_beta1")));
  EXPECT_THAT(message(OptimizerName::kSgd, "nesterov=True"),
              ThrowsMessage<ConfigError>(HasSubstr("needs a momentum")));
}

TEST_F(AdamWTest, RefusesOptionsOutOfRange) {
  EXPECT_THAT(
      [&] { make_optimizer({.beta1 = 1.0}, layout_); },
      ThrowsMessage<ConfigError>(HasSubstr("--adam_beta1 is 1; expected a number in [0, 1)")));
  EXPECT_THAT([&] { make_optimizer({.beta2 = -0.1}, layout_); },
              ThrowsMessage<ConfigError>(HasSubstr("--adam_beta2")));
  EXPECT_THAT([&] { make_optimizer({.epsilon = NAN}, layout_); },
              ThrowsMessage<ConfigError>(HasSubstr("--adam_epsilon")));
  EXPECT_THAT([&] { make_optimizer({.weight_decay = -1}, layout_); },
              ThrowsMessage<ConfigError>(HasSubstr("--weight_decay")));
}

// --- --learning_rate_mapping ---

class RateRulesTest : public AdamWTest, public ::testing::WithParamInterface<std::string_view> {
 protected:
  struct Arenas {
    std::vector<float> weights, state;
  };
  // Three steps of all parameters.
  Arenas trained(const OptimizerOptions& options, double learning_rate) {
    const auto optimizer = make_optimizer(options, layout_);
    Arenas own{weights_, std::vector<float>(optimizer->state_elements())};
    for (int step = 1; step <= 3; ++step) {
      draw_gradients(step);
      optimizer->step(context_,
                      {.step = static_cast<std::uint64_t>(step), .learning_rate = learning_rate},
                      {own.weights, {}, gradients_, own.state}, 0, layout_.size());
    }
    return own;
  }
};

TEST_P(RateRulesTest, AParameterHasTheBitsOfAJobWithItsRate) {
  const auto name = std::ranges::find(kOptimizerNames, GetParam()) - std::begin(kOptimizerNames);
  OptimizerOptions options = {.name = static_cast<OptimizerName>(name), .weight_decay = 0.1};
  const Arenas plain = trained(options, 0.01);
  const Arenas slow = trained(options, 0.0025);
  options.rates = parse_rate_rules(R"({"t": 1, "^weight$": 0.0025, "ab": 0.0025})", 0.01);
  const Arenas mapped = trained(options, 0.01);
  for (const nn::ParameterSpec& parameter : layout_.parameters()) {
    SCOPED_TRACE(parameter.name);
    const Arenas& expected = parameter.name == "weight" || parameter.name == "table" ? slow : plain;
    for (std::size_t i = parameter.offset; i < parameter.end(); ++i)
      ASSERT_EQ(mapped.weights[i], expected.weights[i]) << i;
  }
  EXPECT_NE(slow.weights, plain.weights);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RateRulesTest, ::testing::ValuesIn(kOptimizerNames),
                         [](const auto& one) { return std::string(one.param); });

TEST(RateRules, TheLastRuleThatFindsAParameterCounts) {
  nn::ParameterLayout layout;
  layout.add("embeddings.weight", {4}, nn::ParameterKind::kEmbedding);
  layout.add("layer.0.weight", {4}, nn::ParameterKind::kWeight);
  layout.add("layer.0.bias", {4}, nn::ParameterKind::kBias);
  layout.add("layer.1.weight", {4}, nn::ParameterKind::kWeight);
  std::vector<const nn::ParameterSpec*> parameters;
  for (const nn::ParameterSpec& parameter : layout.parameters()) parameters.push_back(&parameter);
  const auto groups = parameter_groups(
      parameters, parse_rate_rules(R"json({"layer": 0.5, "0\\.(weight|x)": 0.25})json", 1));
  std::vector<std::pair<double, std::string>> found;
  for (const ParameterGroup& group : groups)
    for (const nn::ParameterSpec* parameter : group.parameters)
      found.emplace_back(group.rate_factor, parameter->name);
  EXPECT_EQ(found, (std::vector<std::pair<double, std::string>>{{1, "embeddings.weight"},
                                                                {0.5, "layer.1.weight"},
                                                                {0.5, "layer.0.bias"},
                                                                {0.25, "layer.0.weight"}}));
  EXPECT_EQ(groups.size(), 5u) << "two without a rule, of which one is empty, and three of rules";
}

TEST(RateRules, WhatIsWrongIsNamed) {
  const auto message = [](std::string_view text, double rate = 1) {
    try {
      nn::ParameterLayout layout;
      layout.add("fixed", {4}, nn::ParameterKind::kEmbedding, /*trainable=*/false);
      layout.add("weight", {4}, nn::ParameterKind::kWeight);
      make_optimizer({.rates = parse_rate_rules(text, rate)}, layout);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing is wrong");
  };
  EXPECT_EQ(message(R"({"wei": 1})"), "nothing is wrong");
  EXPECT_EQ(message(""), "nothing is wrong");
  EXPECT_THAT(message("[1]"), HasSubstr("--learning_rate_mapping is [1], expected an object"));
  EXPECT_THAT(message(R"({"wei": -1})"), HasSubstr("'wei' has -1, expected a learning rate >= 0"));
  EXPECT_THAT(message(R"({"wei": "1"})"), HasSubstr("'wei' has \"1\", expected"));
  EXPECT_THAT(message(R"({"(": 1})"), HasSubstr("'(' is not a regular expression"));
  EXPECT_THAT(message(R"({"bias": 1})"),
              HasSubstr("'bias' matches no trained parameter; expected a part of a name "
                        "such as weight"));
  EXPECT_THAT(message(R"({"wei": 1})", 0), HasSubstr("--learning_rate is 0"));
}

}  // namespace
}  // namespace tandem::optim
