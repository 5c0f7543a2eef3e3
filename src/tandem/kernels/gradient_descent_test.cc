#include "tandem/kernels/gradient_descent.h"

#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

constexpr std::size_t kCount = 40003;  // several chunks and a ragged end

struct OptimizerState {
  std::vector<float> p, s;
  std::vector<bfloat16> copy;
  friend bool operator==(const OptimizerState& a, const OptimizerState& b) {
    return same_bits(a.p, b.p) && same_bits(a.s, b.s) && same_bits(a.copy, b.copy);
  }
};

template <class Step>
OptimizerState run(const Context& ctx, Step step, bool with_state) {
  OptimizerState state{random_values(kCount, 1), std::vector<float>(kCount),
                       std::vector<bfloat16>(kCount)};
  for (step.step = 1; step.step <= 3; ++step.step) {
    const auto grad = random_values(kCount, 10 + static_cast<std::uint64_t>(step.step));
    float* const s = with_state ? state.s.data() : nullptr;
    if constexpr (std::is_same_v<Step, SgdStep>) {
      sgd(ctx, kCount, step, grad.data(), state.p.data(), s, state.copy.data());
    } else {
      adagrad(ctx, kCount, step, grad.data(), state.p.data(), s, state.copy.data());
    }
  }
  return state;
}

constexpr SgdStep kSgdSteps[] = {
    {.lr = 0.1},
    {.lr = 0.1, .weight_decay = 0.01, .grad_scale = 0.5f},
    {.lr = 0.1, .weight_decay = 0.01, .momentum = 0.9, .dampening = 0.2},
    {.lr = 0.1, .momentum = 0.9, .nesterov = true},
};
constexpr AdagradStep kAdagradSteps[] = {
    {.lr = 0.1},
    {.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.01, .initial_sum = 0.5, .grad_scale = 0.5f},
};

// torch's formulas in f64, for one element.
double sgd_in_f64(const SgdStep& s, std::size_t i) {
  double p = static_cast<double>(random_values(i + 1, 1)[i]);
  double b = 0;
  for (std::uint64_t t = 1; t <= 3; ++t) {
    double g =
        static_cast<double>(random_values(i + 1, 10 + t)[i]) * s.grad_scale + s.weight_decay * p;
    if (s.momentum != 0) {
      b = t == 1 ? g : s.momentum * b + (1 - s.dampening) * g;
      g = s.nesterov ? g + s.momentum * b : b;
    }
    p -= s.lr * g;
  }
  return p;
}

double adagrad_in_f64(const AdagradStep& s, std::size_t i) {
  double p = static_cast<double>(random_values(i + 1, 1)[i]);
  double sum = s.initial_sum;
  for (int t = 1; t <= 3; ++t) {
    const double g =
        static_cast<double>(random_values(i + 1, 10 + static_cast<std::uint64_t>(t))[i]) *
            s.grad_scale +
        s.weight_decay * p;
    sum += g * g;
    p -= s.lr / (1 + (t - 1) * s.lr_decay) * g / (std::sqrt(sum) + s.eps);
  }
  return p;
}

TEST(GradientDescent, ReferenceMatchesTheFormulasInF64) {
  Runtime runtime("optimizer=reference");
  for (const SgdStep& step : kSgdSteps) {
    const OptimizerState got = run(runtime.context(), step, step.momentum != 0);
    for (std::size_t i = 0; i < 40; ++i) {
      ASSERT_NEAR(got.p[i], sgd_in_f64(step, i), 1e-6) << i;
      ASSERT_EQ(got.copy[i], to_bfloat16(got.p[i]));
    }
  }
  for (const AdagradStep& step : kAdagradSteps) {
    const OptimizerState got = run(runtime.context(), step, true);
    for (std::size_t i = 0; i < 40; ++i) {
      ASSERT_NEAR(got.p[i], adagrad_in_f64(step, i), 1e-6) << i;
      ASSERT_EQ(got.copy[i], to_bfloat16(got.p[i]));
    }
  }
}

// The fast versions do the reference's operations, element by element.
TEST(GradientDescent, FastVersionsHaveTheReferencesBits) {
  Runtime reference("optimizer=reference");
  for (const std::string& name : fast_implementations("optimizer")) {
    Runtime fast("optimizer=" + name, 3);
    for (const SgdStep& step : kSgdSteps) {
      const bool with_state = step.momentum != 0;
      EXPECT_EQ(run(fast.context(), step, with_state), run(reference.context(), step, with_state))
          << name;
    }
    for (const AdagradStep& step : kAdagradSteps) {
      EXPECT_EQ(run(fast.context(), step, true), run(reference.context(), step, true)) << name;
    }
  }
}

TEST(GradientDescent, RefusesWhatItCannotDo) {
  Runtime runtime;
  float p = 0, g = 0;
  EXPECT_THROW(sgd(runtime.context(), 1, {.step = 0}, &g, &p, nullptr, nullptr), InvalidArgument);
  EXPECT_THROW(sgd(runtime.context(), 1, {.momentum = 0.9}, &g, &p, nullptr, nullptr),
               InvalidArgument);
  EXPECT_THROW(adagrad(runtime.context(), 1, {.step = 0}, &g, &p, &p, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace tandem::kernels::testing
