#include "tandem/kernels/cross_entropy.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_test_support.h"
#include "tandem/kernels/squared_error.h"

namespace tandem::kernels::testing {
namespace {

TEST(CrossEntropy, GradientIsTheDerivativeOfTheLoss) {
  Runtime runtime;
  const Batch batch({5, 3, 4});
  auto logits = random_values(batch.rows() * 2, 1);
  const std::vector<std::int32_t> start = {2, 0, 4};  // the last one is outside its 4 rows: ignored
  const std::vector<std::int32_t> end = {4, 1, 3};
  std::vector<float> grad(logits.size());
  const auto loss = [&] {
    return 3.0 * span_cross_entropy(runtime.context(), batch.sequences(), logits.data(),
                                    start.data(), end.data(), 1.0f, nullptr);
  };
  const double value = span_cross_entropy(runtime.context(), batch.sequences(), logits.data(),
                                          start.data(), end.data(), 3.0f, grad.data());
  EXPECT_NEAR(3.0 * value, loss(), 1e-12);
  expect_gradient(logits, grad, loss, "logits");
  for (std::size_t row = 8; row < 12; ++row) EXPECT_EQ(grad[2 * row], 0.0f);
}

TEST(CrossEntropy, UniformLogitsGiveTheLogarithmOfTheRows) {
  Runtime runtime;
  const Batch batch({8});
  const std::vector<float> logits(16, 3.0f);
  const std::int32_t start = 1;
  const std::int32_t negative = -5;  // counts as row 0, as in HF's models
  EXPECT_NEAR(span_cross_entropy(runtime.context(), batch.sequences(), logits.data(), &start,
                                 &negative, 1.0f, nullptr),
              std::log(8.0), 1e-12);
}

TEST(CrossEntropy, AllTargetsIgnoredIsNan) {
  Runtime runtime;
  const Batch batch({4});
  const std::vector<float> logits(8, 1.0f);
  std::vector<float> grad(8, 5.0f);
  const std::int32_t outside = 4;
  const std::int32_t inside = 1;
  EXPECT_TRUE(std::isnan(span_cross_entropy(runtime.context(), batch.sequences(), logits.data(),
                                            &outside, &inside, 1.0f, grad.data())));
  EXPECT_EQ(grad[0], 0.0f);
}

// --- one class per row ---

// Five classes; the second row does not count.
constexpr std::size_t kClasses = 5;
const std::vector<std::int32_t> kTargets = {2, kIgnoredTarget, 4, 0};

ClassTargets class_targets(double smoothing = 0) {
  return {.rows = kTargets.size(),
          .classes = kClasses,
          .target = kTargets.data(),
          .smoothing = smoothing};
}

TEST(ClassCrossEntropy, GradientIsTheDerivativeOfTheLoss) {
  Runtime runtime;
  for (const double smoothing : {0.0, 0.1}) {
    const ClassTargets targets = class_targets(smoothing);
    auto logits = random_values(targets.rows * kClasses, 1);
    std::vector<float> grad(logits.size(), 5.0f);
    const auto loss = [&] {
      return 3.0 * cross_entropy(runtime.context(), targets, logits.data(), 1.0f, nullptr);
    };
    const double value =
        cross_entropy(runtime.context(), targets, logits.data(), 3.0f, grad.data());
    EXPECT_EQ(3.0 * value, loss());
    expect_gradient(logits, grad, loss, fmt::format("smoothing {}", smoothing));
    for (std::size_t c = 0; c < kClasses; ++c) EXPECT_EQ(grad[kClasses + c], 0.0f);
    cross_entropy(runtime.context(), targets, logits.data(), 3.0f, logits.data());
    EXPECT_EQ(logits, grad);  // in place
  }
}

// (1 - e) times the loss without, and e times the mean of -log p: transformers' LabelSmoother.
TEST(ClassCrossEntropy, SmoothingMixesTheTargetWithAllClasses) {
  Runtime runtime;
  const auto logits = random_values(kTargets.size() * kClasses, 1);
  double mean_of_all = 0;
  for (const std::size_t row : {0, 2, 3}) {
    double total = 0, sum = 0;
    for (std::size_t c = 0; c < kClasses; ++c) {
      total += std::exp(static_cast<double>(logits[row * kClasses + c]));
      sum += logits[row * kClasses + c];
    }
    mean_of_all += (std::log(total) - sum / kClasses) / 3;
  }
  const auto loss = [&](double smoothing) {
    return cross_entropy(runtime.context(), class_targets(smoothing), logits.data(), 1.0f, nullptr);
  };
  EXPECT_NEAR(loss(0.1), 0.9 * loss(0) + 0.1 * mean_of_all, 1e-12);
}

TEST(ClassCrossEntropy, NoRowThatCountsIsNan) {
  Runtime runtime;
  const std::vector<std::int32_t> none(3, kIgnoredTarget);
  const std::vector<float> logits(6, 1.0f);
  std::vector<float> grad(6, 5.0f);
  EXPECT_TRUE(
      std::isnan(cross_entropy(runtime.context(), {.rows = 3, .classes = 2, .target = none.data()},
                               logits.data(), 1.0f, grad.data())));
  EXPECT_EQ(grad, std::vector<float>(6, 0.0f));
}

TEST(ClassCrossEntropy, ATargetOutsideTheClassesIsNamedWithItsRow) {
  Runtime runtime;
  const std::vector<float> logits(4, 1.0f);
  for (const std::int32_t bad : {-1, 2}) {
    const std::vector<std::int32_t> targets = {1, bad};
    EXPECT_THAT(
        [&] {
          cross_entropy(runtime.context(), {.rows = 2, .classes = 2, .target = targets.data()},
                        logits.data(), 1.0f, nullptr);
        },
        ::testing::ThrowsMessage<InvalidArgument>(
            ::testing::HasSubstr(fmt::format("row 1 has the label {}; expected 0 to 1", bad))));
  }
}

TEST(ClassCrossEntropy, BitsDoNotDependOnThreads) {
  const std::size_t rows = 1000;
  const auto logits = random_values(rows * kClasses, 1);
  std::vector<std::int32_t> targets(rows);
  for (std::size_t i = 0; i < rows; ++i)
    targets[i] = i % 7 == 0 ? kIgnoredTarget : static_cast<std::int32_t>(i % kClasses);
  const auto run = [&](int threads, std::vector<float>& grad) {
    Runtime runtime("", threads);
    return cross_entropy(runtime.context(),
                         {.rows = rows, .classes = kClasses, .target = targets.data()},
                         logits.data(), 1.0f, grad.data());
  };
  std::vector<float> one(logits.size()), three(logits.size());
  EXPECT_EQ(run(1, one), run(3, three));
  EXPECT_EQ(one, three);
}

// --- any number of classes ---

TEST(BinaryCrossEntropy, GradientIsTheDerivativeOfTheLoss) {
  Runtime runtime;
  auto logits = random_values(12, 1);
  std::vector<float> targets(12), grad(12);
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = i % 3 == 0 ? 1.0f : 0.0f;
  const auto loss = [&] {
    return 3.0 * binary_cross_entropy(runtime.context(), 12, logits.data(), targets.data(), 1.0f,
                                      nullptr);
  };
  binary_cross_entropy(runtime.context(), 12, logits.data(), targets.data(), 3.0f, grad.data());
  expect_gradient(logits, grad, loss, "logits");
}

// Where e^x overflows, and where 1 - s(x) is nothing.
TEST(BinaryCrossEntropy, KnownValues) {
  Runtime runtime;
  const auto loss = [&](float x, float target) {
    return binary_cross_entropy(runtime.context(), 1, &x, &target, 1.0f, nullptr);
  };
  EXPECT_NEAR(loss(0, 1), std::log(2.0), 1e-15);
  EXPECT_EQ(loss(1000, 0), 1000);
  EXPECT_EQ(loss(1000, 1), 0);
  EXPECT_EQ(loss(-1000, 1), 1000);
  EXPECT_NEAR(loss(2, 1), std::log1p(std::exp(-2.0)), 1e-15);
}

// --- regression ---

TEST(SquaredError, ValueAndGradient) {
  Runtime runtime;
  auto predictions = random_values(7, 1);
  const auto targets = random_values(7, 2);
  std::vector<float> grad(7);
  const auto loss = [&] {
    return 3.0 *
           squared_error(runtime.context(), 7, predictions.data(), targets.data(), 1.0f, nullptr);
  };
  squared_error(runtime.context(), 7, predictions.data(), targets.data(), 3.0f, grad.data());
  expect_gradient(predictions, grad, loss, "predictions");
  const float prediction = 2.5f, target = -0.5f;
  EXPECT_EQ(squared_error(runtime.context(), 1, &prediction, &target, 1.0f, nullptr), 9.0);
}

}  // namespace
}  // namespace tandem::kernels::testing
