#include "tandem/kernels/rotary.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

struct Table {
  Table(std::size_t head_dim, std::size_t num_positions, double theta = 10000.0)
      : positions(num_positions),
        cos(num_positions * head_dim / 2),
        sin(num_positions * head_dim / 2) {
    fill_rotary_table(theta, head_dim, num_positions, cos.data(), sin.data());
  }
  RotaryTable view() const { return {positions, cos.data(), sin.data()}; }

  std::size_t positions;
  std::vector<float> cos, sin;
};

struct Shape {
  std::vector<std::uint32_t> lengths;
  std::size_t heads, head_dim, ld;
};

const Shape kShapes[] = {{{1}, 1, 2, 2},       {{5, 1, 7}, 2, 32, 64}, {{17, 65}, 4, 64, 384},
                         {{40, 9}, 3, 20, 77}, {{300}, 1, 128, 128},   {{33, 31}, 2, 34, 100}};

template <class T>
std::vector<T> rotated(const Context& ctx, const Shape& shape, bool forward, std::vector<T> x) {
  const Batch batch(shape.lengths);
  const Table table(shape.head_dim, 300);
  const auto rotate = forward ? rotary_forward<T> : rotary_backward<T>;
  rotate(ctx, batch.sequences(), shape.heads, shape.head_dim, table.view(), x.data(), shape.ld);
  return x;
}

template <class T>
std::vector<T> values_of(const Shape& shape, std::uint64_t seed) {
  return random_values<T>(Batch(shape.lengths).rows() * shape.ld, seed);
}

template <class T>
void compare(const std::string& implementation) {
  Runtime fast("rotary=" + implementation);
  Runtime reference("reference");
  for (const Shape& shape : kShapes) {
    for (const bool forward : {true, false}) {
      auto x = values_of<T>(shape, 1);
      x[0] = to_storage<T>(std::nanf(""));
      // Two products and one sum of numbers below 1.
      expect_near(
          rotated(fast.context(), shape, forward, x),
          rotated(reference.context(), shape, forward, x),
          [](std::size_t) { return 4.0 * kFloatEpsilon; },
          fmt::format("{} head of {} forward {}", implementation, shape.head_dim, forward));
    }
  }
}

TEST(Rotary, FastVersionsAgreeWithTheReference) {
  for (const std::string& name : fast_implementations("rotary")) {
    compare<float>(name);
    compare<bfloat16>(name);
  }
}

TEST(Rotary, BackwardIsTheTransposeOfForward) {
  for (const std::string& name : running_implementations("rotary")) {
    Runtime runtime("rotary=" + name);
    for (const Shape& shape : kShapes) {
      const auto x = values_of<float>(shape, 1);
      const auto grad = values_of<float>(shape, 2);
      const double forward = weighted_sum(rotated(runtime.context(), shape, true, x), grad);
      const double backward = weighted_sum(rotated(runtime.context(), shape, false, grad), x);
      const double bound = 4.0 * kFloatEpsilon * std::sqrt(static_cast<double>(x.size()));
      EXPECT_NEAR(forward, backward, bound) << name << " head of " << shape.head_dim;
    }
  }
}

TEST(Rotary, ReferenceBackwardIsTheDerivativeOfForward) {
  Runtime runtime("reference");
  const Shape shape{{6, 4}, 2, 6, 19};
  auto x = values_of<float>(shape, 1);
  const auto weights = values_of<float>(shape, 2);
  const auto grad = rotated(runtime.context(), shape, false, weights);
  const auto loss = [&] {
    return weighted_sum(rotated(runtime.context(), shape, true, x), weights);
  };
  expect_gradient(x, grad, loss, "rotary");
}

// Position 0 keeps its bits, and so does what lies between the heads and the next row.
TEST(Rotary, ChangesNothingElse) {
  for (const std::string& name : running_implementations("rotary")) {
    Runtime runtime("rotary=" + name);
    const Shape shape{{3, 2}, 2, 10, 31};
    const auto x = values_of<float>(shape, 1);
    const auto y = rotated(runtime.context(), shape, true, x);
    for (std::size_t row = 0; row < 5; ++row) {
      const bool at_origin = row == 0 || row == 3;
      const std::size_t head_columns = at_origin ? 0 : shape.heads * shape.head_dim;
      for (std::size_t column = 0; column < shape.ld; ++column) {
        const std::size_t i = row * shape.ld + column;
        EXPECT_EQ(x[i] == y[i], column >= head_columns) << name << " row " << row;
      }
    }
  }
}

// A text's rows have the same bits alone and in a batch, and for any number of threads.
TEST(Rotary, SameBitsForAnyPackingAndNumberOfThreads) {
  for (const std::string& name : running_implementations("rotary")) {
    Runtime one("rotary=" + name, 1);
    Runtime three("rotary=" + name, 3);
    const Shape batch{{90, 40}, 4, 32, 200}, alone{{90}, 4, 32, 200};
    const auto x = values_of<bfloat16>(batch, 1);
    const auto want = rotated(one.context(), batch, true, x);
    EXPECT_TRUE(same_bits(rotated(three.context(), batch, true, x), want)) << name;
    const auto rows = [&](const std::vector<bfloat16>& from) {
      return std::vector<bfloat16>(from.begin(), from.begin() + 90 * 200);
    };
    EXPECT_TRUE(same_bits(rotated(three.context(), alone, true, rows(x)), rows(want))) << name;
  }
}

TEST(Rotary, AllVectorWidthsHaveTheSameBits) {
  Runtime narrow("rotary=" + or_emulation("rotary", "avx2"));
  Runtime wide("rotary=" + or_emulation("rotary", "avx512"));
  for (const Shape& shape : kShapes) {
    const auto x = values_of<float>(shape, 1);
    EXPECT_TRUE(same_bits(rotated(narrow.context(), shape, true, x),
                          rotated(wide.context(), shape, true, x)));
  }
}

// torch 2.15: position 8191 of ModernBertRotaryEmbedding, head of 64, theta 160000.
TEST(Rotary, TheTableHasHuggingFacesAngles) {
  const Table table(64, 8192, 160000.0);
  EXPECT_EQ(table.cos[0], 1.0f);
  EXPECT_EQ(table.sin[31], 0.0f);
  const std::size_t last = 8191 * 32;
  EXPECT_NEAR(table.cos[last], std::cos(8191.0), 1e-6);
  EXPECT_NEAR(table.sin[last + 31], std::sin(8191.0 * std::pow(160000.0, -62.0 / 64.0)), 1e-6);
}

// transformers 4.57.6: inv_freq of Llama 3.2, head of 64, theta 500000, factor 32, of
// _compute_llama3_parameters; the frequencies that stay, change gradually, and are divided.
TEST(Rotary, TheTableIsScaledAsLlama3) {
  const RotaryScaling scaling{.factor = 32,
                              .low_frequency_factor = 1,
                              .high_frequency_factor = 4,
                              .original_positions = 8192};
  std::vector<float> cos(2 * 32), sin(2 * 32);
  fill_rotary_table(500000.0, 64, 2, cos.data(), sin.data(), &scaling);
  const double plain = std::pow(500000.0, -20.0 / 64.0);
  EXPECT_NEAR(sin[32 + 10], std::sin(plain), 1e-7);
  for (const std::size_t j : {15, 16, 17}) {
    const double frequency = std::pow(500000.0, -2.0 * static_cast<double>(j) / 64.0);
    const double share = (8192.0 / (2 * std::numbers::pi / frequency) - 1.0) / 3.0;
    ASSERT_TRUE(share > 0 && share < 1) << j;
    EXPECT_NEAR(sin[32 + j], (1 - share) * frequency / 32 + share * frequency, 1e-8) << j;
  }
  EXPECT_NEAR(sin[32 + 31], std::pow(500000.0, -62.0 / 64.0) / 32, 1e-12);
}

TEST(Rotary, BadShapesAreNamed) {
  Runtime runtime;
  const Batch batch({6, 4});
  const Table table(4, 5);
  std::vector<float> x(10 * 8);
  const auto rotate = [&](std::size_t heads, std::size_t head_dim, const RotaryTable& t) {
    rotary_forward(runtime.context(), batch.sequences(), heads, head_dim, t, x.data(), 8);
  };
  EXPECT_THROW(rotate(2, 4, table.view()), InvalidArgument);  // 6 rows, 5 positions
  const Table longer(4, 6);
  rotate(2, 4, longer.view());
  EXPECT_THROW(rotate(3, 4, longer.view()), InvalidArgument);
  EXPECT_THROW(rotate(2, 3, longer.view()), InvalidArgument);
  EXPECT_THROW(Table(4, 6, 0.0), InvalidArgument);
}

}  // namespace
}  // namespace tandem::kernels::testing
