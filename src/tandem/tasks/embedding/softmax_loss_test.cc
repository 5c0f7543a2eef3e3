// SoftmaxLoss against sentence-transformers' values, and the same bits however rows are shared.
#include "tandem/tasks/embedding/softmax_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tandem/tasks/embedding/loss_test_support.h"

namespace tandem::tasks::embedding {
namespace {

constexpr std::size_t kRows = 5, kWidth = 6;

std::vector<float> waves(std::size_t count, double pace) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(i);
    values[i] = static_cast<float>(std::sin(pace * x * x + 0.7 * x + 0.1));
  }
  return values;
}

double projection(const std::vector<float>& gradient) {
  double sum = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i)
    sum += gradient[i] * std::cos(static_cast<double>(i));
  return sum;
}

struct Data {
  std::vector<float> values = waves(2 * kRows * kWidth, 1.3), labels = {0, 2, 1, 1, 0};
  EmbeddedRows group() const { return {kRows, 2, kWidth, values, labels}; }
};

// Values of sentence-transformers 5.7.0 in f64.
TEST(EmbeddingSoftmaxLoss, GivesTheValuesOfTheClass) {
  struct Reference {
    SoftmaxLayer layer;
    double loss, embeddings, parameters;
  };
  const std::vector<Reference> references = {
      {{.classes = 3}, 2.74913332, -1.88825107, 0.99488395},
      {{.classes = 3, .product = true}, 2.60986892, 1.35982969, 0.62893363},
      {{.classes = 3, .texts = false}, 2.04138796, -1.01495797, -0.42600598},
  };
  const Data data;
  const Machine machine(2);
  for (const Reference& reference : references) {
    const std::vector<float> layer = waves(reference.layer.parameters(kWidth), 0.9);
    std::vector<float> embeddings(data.values.size(), 7), parameters(layer.size(), 7);
    const double loss = softmax_loss(reference.layer, layer, data.group(), {0, kRows},
                                     {embeddings, parameters}, machine.context);
    EXPECT_NEAR(loss, reference.loss, 1e-7);
    EXPECT_NEAR(projection(embeddings), reference.embeddings, 1e-6);
    EXPECT_NEAR(projection(parameters), reference.parameters, 1e-6);
  }
}

TEST(EmbeddingSoftmaxLoss, BitsDependNeitherOnRangesNorOnThreads) {
  const Data data;
  const SoftmaxLayer layer{.classes = 3};
  const std::vector<float> values = waves(layer.parameters(kWidth), 0.9);
  const Machine one(1), four(4);
  std::vector<float> whole(data.values.size()), parameters(values.size());
  const double loss =
      softmax_loss(layer, values, data.group(), {0, kRows}, {whole, parameters}, one.context);
  for (std::size_t row = 0; row < kRows; ++row) {
    std::vector<float> part(2 * kWidth), of_rank(values.size());
    EXPECT_EQ(loss, softmax_loss(layer, values, data.group(), {row, row + 1}, {part, of_rank},
                                 four.context));
    EXPECT_EQ(of_rank, parameters);
    for (std::size_t i = 0; i < 2 * kWidth; ++i)
      EXPECT_EQ(part[i], whole[(i / kWidth * kRows + row) * kWidth + i % kWidth]);
  }
}

TEST(EmbeddingSoftmaxLoss, EqualTextsAndLargeNumbersAreFinite) {
  Data data;
  std::copy_n(data.values.begin(), kRows * kWidth, data.values.begin() + kRows * kWidth);
  for (float& value : data.values) value *= 1e4f;
  const SoftmaxLayer layer{.classes = 3};
  std::vector<float> embeddings(data.values.size());
  const Machine machine(1);
  EXPECT_TRUE(std::isfinite(softmax_loss(layer, waves(layer.parameters(kWidth), 0.9), data.group(),
                                         {0, kRows}, {embeddings, {}}, machine.context)));
  for (const float value : embeddings) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace tandem::tasks::embedding
