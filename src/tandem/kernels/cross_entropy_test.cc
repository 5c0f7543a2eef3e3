#include "tandem/kernels/cross_entropy.h"

#include <cmath>
#include <vector>

#include "tandem/kernels/kernel_test_support.h"

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

}  // namespace
}  // namespace tandem::kernels::testing
