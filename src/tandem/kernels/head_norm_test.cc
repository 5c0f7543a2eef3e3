#include "tandem/kernels/head_norm.h"

#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

constexpr float kEps = 1e-6f;

template <class T>
struct HeadNormCase {
  explicit HeadNormCase(const HeadNormShape& with, const std::vector<std::uint32_t>& lengths)
      : shape(with),
        batch(lengths),
        x(random_values<T>(batch.rows() * shape.ld_x, 1)),
        grad(random_values<T>(batch.rows() * shape.ld_y, 2)),
        gamma(random_values(shape.head_dim, 3)) {}
  HeadNormShape shape;
  Batch batch;
  std::vector<T> x, grad;
  std::vector<float> gamma;
};

template <class T>
struct HeadNormResults {
  std::vector<T> y, grad_x;
  std::vector<float> rstd, grad_gamma;
};

template <class T>
HeadNormResults<T> run(const Context& ctx, const HeadNormCase<T>& c) {
  HeadNormResults<T> r;
  r.y.assign(c.batch.rows() * c.shape.ld_y, to_storage<T>(7.0f));
  r.rstd.resize(c.batch.rows() * c.shape.heads);
  r.grad_x = c.grad;
  r.grad_gamma = random_values(c.shape.head_dim, 4);
  head_norm_forward(ctx, c.batch.sequences(), c.shape, c.gamma.data(), kEps, c.x.data(), r.y.data(),
                    r.rstd.data());
  head_norm_backward(ctx, c.batch.sequences(), c.shape, c.gamma.data(), c.x.data(), r.rstd.data(),
                     r.grad_x.data(), r.grad_gamma.data(), /*accumulate=*/true);
  return r;
}

const HeadNormShape kShapes[] = {
    {1, 2, 2, 2}, {3, 16, 60, 48}, {2, 128, 300, 256}, {4, 20, 80, 90}};

template <class T>
void compare(const std::string& implementation) {
  Runtime fast("layer_norm=" + implementation);
  Runtime reference("reference");
  for (const HeadNormShape& shape : kShapes) {
    const HeadNormCase<T> c(shape, {1, 7, 40});
    const auto got = run(fast.context(), c);
    const auto want = run(reference.context(), c);
    const std::string what = fmt::format("{} head of {}", implementation, shape.head_dim);
    const double scale = std::max(1.0, largest_magnitude(want.rstd));
    const double bound =
        8.0 * std::sqrt(static_cast<double>(shape.head_dim)) * kFloatEpsilon * scale;
    const auto constant = [](double b) { return [b](std::size_t) { return b; }; };
    expect_near(got.y, want.y, constant(bound), what + " y");
    expect_near(got.rstd, want.rstd, constant(bound * scale), what + " rstd");
    expect_near(got.grad_x, want.grad_x, constant(bound * scale), what + " grad");
    expect_near(got.grad_gamma, want.grad_gamma,
                constant(bound * static_cast<double>(c.batch.rows() * shape.heads)),
                what + " grad_gamma");
  }
}

TEST(HeadNorm, FastVersionsAgreeWithTheReference) {
  for (const std::string& name : fast_implementations("layer_norm")) {
    compare<float>(name);
    compare<bfloat16>(name);
  }
}

TEST(HeadNorm, ReferenceIsTheRootMeanSquareOfEachHead) {
  Runtime runtime("reference");
  const HeadNormCase<float> c({3, 16, 60, 48}, {4, 2});
  const auto r = run(runtime.context(), c);
  for (std::size_t row = 0; row < 6; ++row) {
    for (std::size_t head = 0; head < 3; ++head) {
      const float* const x = c.x.data() + row * 60 + head * 16;
      double squares = 0;
      for (std::size_t d = 0; d < 16; ++d) squares += static_cast<double>(x[d]) * x[d] / 16;
      for (std::size_t d = 0; d < 16; ++d) {
        EXPECT_NEAR(r.y[row * 48 + head * 16 + d], x[d] / std::sqrt(squares + kEps) * c.gamma[d],
                    1e-6);
      }
    }
  }
}

TEST(HeadNorm, ReferenceBackwardIsTheDerivativeOfForward) {
  Runtime runtime("reference");
  HeadNormCase<float> c({3, 16, 48, 48}, {4, 2});
  const auto before = random_values(16, 4);
  auto r = run(runtime.context(), c);
  for (std::size_t d = 0; d < before.size(); ++d) r.grad_gamma[d] -= before[d];
  const auto loss = [&] { return weighted_sum(run(runtime.context(), c).y, c.grad); };
  expect_gradient(c.x, r.grad_x, loss, "x");
  expect_gradient(c.gamma, r.grad_gamma, loss, "gamma");
}

TEST(HeadNorm, SameBitsInPlaceAndForAnyNumberOfThreads) {
  for (const std::string& name : running_implementations("layer_norm")) {
    const HeadNormCase<bfloat16> c({3, 32, 100, 100}, {130, 77, 3});
    Runtime one("layer_norm=" + name, 1), three("layer_norm=" + name, 3);
    const auto want = run(one.context(), c);
    const auto got = run(three.context(), c);
    EXPECT_TRUE(same_bits(got.y, want.y) && same_bits(got.grad_x, want.grad_x)) << name;
    EXPECT_TRUE(same_bits(got.grad_gamma, want.grad_gamma)) << name;
    std::vector<bfloat16> x = c.x;
    std::vector<float> rstd(want.rstd.size());
    head_norm_forward(three.context(), c.batch.sequences(), c.shape, c.gamma.data(), kEps, x.data(),
                      x.data(), rstd.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool of_head = i % 100 < 96;  // the other columns stay
      ASSERT_EQ(to_float(x[i]), to_float(of_head ? want.y[i] : c.x[i])) << name << " " << i;
    }
  }
}

TEST(HeadNorm, HeadsMustFitInTheRows) {
  Runtime runtime;
  const HeadNormCase<float> c({3, 16, 47, 48}, {2});
  EXPECT_THROW(run(runtime.context(), c), InvalidArgument);
}

}  // namespace
}  // namespace tandem::kernels::testing
