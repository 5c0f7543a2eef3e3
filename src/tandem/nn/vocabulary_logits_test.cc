#include "tandem/nn/vocabulary_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "tandem/kernels/linear.h"

namespace tandem::nn {
namespace {

std::vector<float> even_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(engine);
  return values;
}

class VocabularyLogitsTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::size_t kRows = 5, kVocabulary = 203, kWidth = 40;

  // The product of the pass in which the model is trained, over all rows.
  template <class T>
  std::vector<float> product(const kernels::Context& context) const {
    const auto rounded = [](const std::vector<float>& values) {
      std::vector<T> operands(values.size());
      std::ranges::transform(values, operands.begin(), to_storage<T>);
      return operands;
    };
    const std::vector<T> x = rounded(x_), weight = rounded(weight_);
    std::vector<float> logits(kRows * kVocabulary);
    kernels::linear_forward_f32<T>(context, kRows, kVocabulary, kWidth, x.data(), weight.data(),
                                   nullptr, logits.data());
    return logits;
  }

  const std::vector<float> x_ = even_values(kRows * kWidth, 1);
  const std::vector<float> weight_ = even_values(kVocabulary * kWidth, 2);
};

TEST_P(VocabularyLogitsTest, HaveTheBitsOfThePassWithAnyNumberOfRows) {
  const Precision precision = GetParam() == "f32" ? Precision::kFloat32 : Precision::kBfloat16;
  ThreadPool threads(2);
  kernels::Scratch scratch(2);
  for (const auto& one :
       kernels::implementations("gemm", kernels::CpuFeatures::detect(), precision)) {
    if (!one.reason.empty()) continue;
    SCOPED_TRACE(one.implementation);
    const kernels::KernelSet kernels = kernels::select_kernels(
        kernels::CpuFeatures::detect(), "gemm=" + one.implementation, precision);
    const kernels::Context context{threads, kernels, scratch};
    const std::vector<float> want =
        precision == Precision::kFloat32 ? product<float>(context) : product<bfloat16>(context);
    VocabularyLogits output(context, kVocabulary, kWidth, weight_.data(), precision);
    EXPECT_EQ(output.vocabulary(), kVocabulary);
    EXPECT_EQ(output.width(), kWidth);
    std::vector<float> found(want.size());
    output.compute(context, kRows, x_.data(), found.data());
    EXPECT_EQ(found, want);
    // Its blocking depends on the shape, and with it the order of sums.
    if (one.implementation.starts_with("onednn")) continue;
    for (std::size_t row = 0; row < kRows; ++row) {
      output.compute(context, 1, x_.data() + row * kWidth, found.data() + row * kVocabulary);
    }
    EXPECT_EQ(found, want) << "one row at a time";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, VocabularyLogitsTest, ::testing::Values("f32", "bf16"),
                         [](const auto& type) { return type.param; });

}  // namespace
}  // namespace tandem::nn
