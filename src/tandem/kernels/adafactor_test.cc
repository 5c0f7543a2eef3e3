#include "tandem/kernels/adafactor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

struct OptimizerState {
  std::vector<float> p, rows, columns;
  std::vector<bfloat16> copy;
};

constexpr AdafactorStep step_number(int t) {
  return {.lr = 1e-2,
          .beta2 = t == 1 ? 0.0 : 0.5,
          .clip_threshold = 0.7,
          .weight_decay = 0.1,
          .grad_scale = 0.5f};
}

OptimizerState run(const Context& ctx, std::size_t rows, std::size_t columns) {
  const std::size_t count = rows * columns;
  OptimizerState s{random_values(count, 1), std::vector<float>(rows), std::vector<float>(columns),
                   std::vector<bfloat16>(count)};
  for (int t = 1; t <= 2; ++t) {
    const auto grad = random_values(count, 10 + static_cast<std::uint64_t>(t));
    adafactor_matrix(ctx, rows, columns, step_number(t), grad.data(), s.p.data(), s.rows.data(),
                     s.columns.data(), s.copy.data());
  }
  return s;
}

// transformers.Adafactor in f64.
std::vector<double> in_f64(std::size_t rows, std::size_t columns) {
  const auto start = random_values(rows * columns, 1);
  std::vector<double> p(start.begin(), start.end()), row(rows), column(columns), u(rows * columns);
  for (int t = 1; t <= 2; ++t) {
    const AdafactorStep step = step_number(t);
    const auto grad = random_values(rows * columns, 10 + static_cast<std::uint64_t>(t));
    const auto g = [&](std::size_t r, std::size_t c) { return 0.5 * grad[r * columns + c]; };
    for (std::size_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < columns; ++c) sum += g(r, c) * g(r, c) + step.eps;
      row[r] = step.beta2 * row[r] + (1 - step.beta2) * sum / static_cast<double>(columns);
    }
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::size_t r = 0; r < rows; ++r) sum += g(r, c) * g(r, c) + step.eps;
      column[c] = step.beta2 * column[c] + (1 - step.beta2) * sum / static_cast<double>(rows);
    }
    double mean = 0, squares = 0;
    for (const double x : row) mean += x / static_cast<double>(rows);
    for (std::size_t i = 0; i < u.size(); ++i) {
      const std::size_t r = i / columns, c = i % columns;
      u[i] = g(r, c) / std::sqrt(row[r] / mean) / std::sqrt(column[c]);
      squares += u[i] * u[i];
    }
    const double rms = std::sqrt(squares / static_cast<double>(u.size()));
    for (std::size_t i = 0; i < u.size(); ++i) {
      p[i] -= step.lr * step.weight_decay * p[i];
      p[i] -= step.lr * u[i] / std::max(1.0, rms / step.clip_threshold);
    }
  }
  return p;
}

TEST(Adafactor, MatrixMatchesTheFormulaInF64) {
  Runtime runtime;
  for (const auto& [rows, columns] :
       {std::pair<std::size_t, std::size_t>{1, 5}, {3, 1}, {2, 700}, {200, 33}}) {
    const OptimizerState got = run(runtime.context(), rows, columns);
    const std::vector<double> want = in_f64(rows, columns);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got.p[i], want[i], 1e-6) << rows << "x" << columns << " " << i;
      ASSERT_EQ(got.copy[i], to_bfloat16(got.p[i]));
    }
  }
}

TEST(Adafactor, VectorMatchesTheFormulaInF64) {
  Runtime runtime;
  constexpr std::size_t kCount = 300;
  auto p = random_values(kCount, 1);
  const auto grad = random_values(kCount, 2);
  std::vector<float> v(kCount);
  std::vector<bfloat16> copy(kCount);
  const AdafactorStep step = {.lr = 1e-2, .beta2 = 0, .clip_threshold = 0.5};
  adafactor_vector(runtime.context(), kCount, step, grad.data(), p.data(), v.data(), copy.data());
  const auto start = random_values(kCount, 1);
  // g/sqrt(g^2) is a sign, whose root mean square is 1: clipped to half the rate.
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(p[i], start[i] - std::copysign(0.005, grad[i]), 1e-6);
    ASSERT_EQ(copy[i], to_bfloat16(p[i]));
  }
}

TEST(Adafactor, SameBitsForAnyThreads) {
  Runtime one("", 1);
  Runtime three("", 3);
  const OptimizerState want = run(one.context(), 1000, 96);
  const OptimizerState got = run(three.context(), 1000, 96);
  EXPECT_TRUE(same_bits(got.p, want.p) && same_bits(got.rows, want.rows) &&
              same_bits(got.columns, want.columns));
}

}  // namespace
}  // namespace tandem::kernels::testing
