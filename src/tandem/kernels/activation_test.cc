#include "tandem/kernels/activation.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

constexpr std::size_t kCounts[] = {1, 7, 16, 31, 389, 40000};
constexpr Activation kActivations[] = {Activation::kGelu, Activation::kGeluNew, Activation::kRelu,
                                       Activation::kTanh, Activation::kSilu};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::pair<std::vector<T>, std::vector<T>> activate(const Context& ctx, Activation activation,
                                                   const std::vector<T>& x) {
  const auto grad_y = random_values<T>(x.size(), 2);
  std::vector<T> y(x.size());
  std::vector<T> grad_x(x.size());
  activation_forward(ctx, activation, x.size(), x.data(), y.data());
  activation_backward(ctx, activation, x.size(), x.data(), grad_y.data(), grad_x.data());
  return {y, grad_x};
}

template <class T>
void compare_activations(const std::string& implementation) {
  Runtime fast("activation=" + implementation);
  Runtime reference("reference");
  for (const Activation activation : kActivations) {
    for (const std::size_t count : kCounts) {
      auto x = random_values<T>(count, count);
      for (T& e : x) e = to_storage<T>(to_float(e) * 6.0f);
      x[0] = to_storage<T>(kNan);
      const auto [y, grad_x] = activate(fast.context(), activation, x);
      const auto [want_y, want_grad_x] = activate(reference.context(), activation, x);
      const std::string what = fmt::format("{} activation {} count {}", implementation,
                                           static_cast<int>(activation), count);
      // Phi(x) carries an absolute error of about one unit of 1, multiplied by |x| <= 6.
      expect_near(
          y, want_y, [](std::size_t) { return 16.0 * kFloatEpsilon; }, what + " y");
      expect_near(
          grad_x, want_grad_x, [](std::size_t) { return 32.0 * kFloatEpsilon; }, what + " grad_x");
    }
  }
}

TEST(Activation, FastVersionsAgreeWithTheReference) {
  for (const std::string& name : fast_implementations("activation")) {
    compare_activations<float>(name);
    compare_activations<bfloat16>(name);
  }
}

TEST(Activation, ReferenceBackwardIsTheDerivativeOfForward) {
  Runtime runtime("reference");
  for (const Activation activation : kActivations) {
    auto x = random_values(50, 3);
    for (float& e : x)
      e = e * 3.0f + (std::abs(e) < 0.02f ? 1.0f : 0.0f);  // away from the corner of ReLU
    const auto weights = random_values(50, 2);
    const auto [y, grad_x] = activate(runtime.context(), activation, x);
    const auto loss = [&] {
      return weighted_sum(activate(runtime.context(), activation, x).first, weights);
    };
    expect_gradient(x, grad_x, loss, fmt::format("activation {}", static_cast<int>(activation)));
  }
}

template <class T>
void expect_output_again(const std::string& implementation, Activation activation) {
  Runtime runtime("activation=" + implementation);
  const auto x = random_values<T>(389, 1);
  std::vector<T> y(x.size()), alone(x.size()), again(x.size()), grad_x(x.size());
  activation_forward(runtime.context(), activation, x.size(), x.data(), y.data());
  activation_backward(runtime.context(), activation, x.size(), x.data(), x.data(), alone.data());
  activation_backward(runtime.context(), activation, x.size(), x.data(), x.data(), grad_x.data(),
                      again.data());
  EXPECT_TRUE(same_bits(again, y)) << implementation;
  EXPECT_TRUE(same_bits(grad_x, alone)) << implementation;
}

TEST(Activation, BackwardGivesTheBitsOfTheOutputAgain) {
  for (const auto& row : implementations("activation", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    for (const Activation activation : kActivations) {
      expect_output_again<float>(row.implementation, activation);
      expect_output_again<bfloat16>(row.implementation, activation);
    }
  }
}

struct GatedShape {
  std::size_t rows, columns;
};
constexpr GatedShape kGatedShapes[] = {{1, 1}, {3, 7}, {5, 16}, {40, 389}};

template <class T>
struct GatedResults {
  std::vector<T> y, grad_x, again;
};

template <class T>
GatedResults<T> gate(const Context& ctx, Activation activation, const GatedShape& shape,
                     const std::vector<T>& x) {
  const auto [rows, columns] = shape;
  const auto grad_y = random_values<T>(rows * columns, 2);
  GatedResults<T> r{std::vector<T>(grad_y.size()), std::vector<T>(x.size()),
                    std::vector<T>(grad_y.size())};
  gated_activation_forward(ctx, activation, rows, columns, x.data(), r.y.data());
  gated_activation_backward(ctx, activation, rows, columns, x.data(), grad_y.data(),
                            r.grad_x.data(), r.again.data());
  return r;
}

template <class T>
std::vector<T> gated_input(const GatedShape& shape) {
  auto x = random_values<T>(2 * shape.rows * shape.columns, 1);
  for (T& e : x) e = to_storage<T>(to_float(e) * 4.0f);
  return x;
}

template <class T>
void compare_gates(const std::string& implementation) {
  Runtime fast("activation=" + implementation);
  Runtime reference("reference");
  for (const Activation activation : kActivations) {
    for (const GatedShape& shape : kGatedShapes) {
      auto x = gated_input<T>(shape);
      x[0] = to_storage<T>(kNan);
      const GatedResults<T> got = gate(fast.context(), activation, shape, x);
      const GatedResults<T> want = gate(reference.context(), activation, shape, x);
      const std::string what = fmt::format("{} activation {} columns {}", implementation,
                                           static_cast<int>(activation), shape.columns);
      // The bounds of an activation alone, times a gate of at most 4.
      expect_near(
          got.y, want.y, [](std::size_t) { return 64.0 * kFloatEpsilon; }, what + " y");
      expect_near(
          got.grad_x, want.grad_x, [](std::size_t) { return 128.0 * kFloatEpsilon; },
          what + " grad_x");
      EXPECT_TRUE(same_bits(got.again, got.y)) << what;
    }
  }
}

TEST(GatedActivation, FastVersionsAgreeWithTheReference) {
  for (const std::string& name : fast_implementations("activation")) {
    compare_gates<float>(name);
    compare_gates<bfloat16>(name);
  }
}

TEST(GatedActivation, ReferenceBackwardIsTheDerivativeOfForward) {
  Runtime runtime("reference");
  const GatedShape shape{4, 5};
  for (const Activation activation : kActivations) {
    auto x = gated_input<float>(shape);
    for (float& e : x)
      if (std::abs(e) < 0.02f) e += 1.0f;  // away from the corner of ReLU
    const auto grad_y = random_values(20, 2);
    const auto grad_x = gate(runtime.context(), activation, shape, x).grad_x;
    const auto loss = [&] {
      return weighted_sum(gate(runtime.context(), activation, shape, x).y, grad_y);
    };
    expect_gradient(x, grad_x, loss, fmt::format("activation {}", static_cast<int>(activation)));
  }
}

// The first half of a row is activated, the second one is the gate.
TEST(GatedActivation, IsTheProductOfTheHalves) {
  for (const std::string& name : running_implementations("activation")) {
    Runtime runtime("activation=" + name);
    const std::vector<float> x = {1.0f, -1.0f, 2.0f, 3.0f, 5.0f, 7.0f, 0.5f, 0.25f};
    std::vector<float> y(4), grad(8);
    gated_activation_forward(runtime.context(), Activation::kRelu, 2, 2, x.data(), y.data());
    EXPECT_EQ(y, (std::vector<float>{2.0f, 0.0f, 2.5f, 1.75f})) << name;
    const std::vector<float> ones(4, 1.0f);
    gated_activation_backward(runtime.context(), Activation::kRelu, 2, 2, x.data(), ones.data(),
                              grad.data());
    EXPECT_EQ(grad, (std::vector<float>{2, 0, 1, 0, 0.5f, 0.25f, 5, 7})) << name;
  }
}

TEST(GatedActivation, SameBitsInPlaceAndForAnyNumberOfThreads) {
  for (const std::string& name : running_implementations("activation")) {
    const GatedShape shape{50, 700};
    auto x = gated_input<bfloat16>(shape);
    Runtime one("activation=" + name, 1), three("activation=" + name, 3);
    const auto want = gate(one.context(), Activation::kGelu, shape, x);
    auto grad_y = random_values<bfloat16>(shape.rows * shape.columns, 2);
    gated_activation_backward(three.context(), Activation::kGelu, shape.rows, shape.columns,
                              x.data(), grad_y.data(), x.data(), grad_y.data());
    EXPECT_TRUE(same_bits(x, want.grad_x)) << name;
    EXPECT_TRUE(same_bits(grad_y, want.y)) << name;
  }
}

TEST(Activation, KnownValues) {
  for (const auto& row : implementations("activation", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    Runtime runtime("activation=" + row.implementation);
    const std::vector<float> x = {1.0f, -1.0f, 0.0f, -20.0f, 20.0f};
    std::vector<float> y(x.size());
    activation_forward(runtime.context(), Activation::kGelu, x.size(), x.data(), y.data());
    EXPECT_NEAR(y[0], 0.8413447460685429, 1e-7);  // torch.nn.functional.gelu in f64
    EXPECT_NEAR(y[1], -0.15865525393145707, 1e-7);
    EXPECT_EQ(y[2], 0.0f);
    EXPECT_NEAR(y[3], 0.0, 1e-6);
    EXPECT_EQ(y[4], 20.0f);
    activation_forward(runtime.context(), Activation::kGeluNew, x.size(), x.data(), y.data());
    EXPECT_NEAR(y[0], 0.8411919906082768, 1e-7);
    activation_forward(runtime.context(), Activation::kRelu, x.size(), x.data(), y.data());
    EXPECT_EQ(y, (std::vector<float>{1, 0, 0, 0, 20}));
    activation_forward(runtime.context(), Activation::kTanh, x.size(), x.data(), y.data());
    EXPECT_NEAR(y[0], 0.7615941559557649, 1e-7);
    EXPECT_NEAR(y[1], -0.7615941559557649, 1e-7);
    EXPECT_EQ(y[2], 0.0f);
    EXPECT_EQ(y[3], -1.0f);
    EXPECT_EQ(y[4], 1.0f);
    activation_forward(runtime.context(), Activation::kSilu, x.size(), x.data(), y.data());
    EXPECT_NEAR(y[0], 0.7310585786300049, 1e-7);
    EXPECT_NEAR(y[1], -0.2689414213699951, 1e-7);
    EXPECT_EQ(y[2], 0.0f);
    EXPECT_NEAR(y[3], -4.1223072e-8, 1e-14);
    EXPECT_NEAR(y[4], 20.0, 2e-6);
  }
}

}  // namespace
}  // namespace tandem::kernels::testing
