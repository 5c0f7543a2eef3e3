// Activations, dropout, layer normalisation, embeddings, the loss, the optimizer and the sums.
#include <limits>

#include "tandem/core/error.h"
#include "tandem/kernels/activation.h"
#include "tandem/kernels/adamw.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/kernels/embedding.h"
#include "tandem/kernels/kernel_test_support.h"
#include "tandem/kernels/layer_norm.h"
#include "tandem/kernels/reduce.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels::testing {
namespace {

constexpr std::size_t kCounts[] = {1, 7, 16, 31, 389, 40000};
constexpr Activation kActivations[] = {Activation::kGelu, Activation::kGeluNew, Activation::kRelu};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// --- elementary functions ---

// The largest error over a sweep of x, in units of the last place of the exact result.
template <class Exact>
double worst_ulp(void (*f)(std::size_t, const float*, float*), float from, float to, Exact exact) {
  constexpr std::size_t kPoints = 2'000'003;
  std::vector<float> x(kPoints);
  std::vector<float> y(kPoints);
  for (std::size_t i = 0; i < kPoints; ++i) {
    x[i] = from + (to - from) * static_cast<float>(i) / static_cast<float>(kPoints - 1);
  }
  f(kPoints, x.data(), y.data());
  double worst = 0;
  for (std::size_t i = 0; i < kPoints; ++i) {
    const double want = exact(static_cast<double>(x[i]));
    const auto rounded = static_cast<float>(std::abs(want));
    const double ulp =
        static_cast<double>(std::nextafter(rounded, kInfinity)) - static_cast<double>(rounded);
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - want) / ulp);
  }
  return worst;
}

void check_math(const MathFunctions& math) {
  const auto exp = [](double x) { return std::exp(x); };
  EXPECT_LE(worst_ulp(math.exp, -87.0f, 88.7f, exp), 2.0);
  EXPECT_LE(worst_ulp(math.exp, -1.0f, 1.0f, exp), 2.0);
  EXPECT_LE(worst_ulp(math.erf, -5.0f, 5.0f, [](double x) { return std::erf(x); }), 2.0);
  EXPECT_LE(worst_ulp(math.erf, -1e-3f, 1e-3f, [](double x) { return std::erf(x); }), 2.0);
  const std::vector<float> x = {kNan, kInfinity, -kInfinity, 89.0f, -110.0f, -100.0f, 0.0f};
  std::vector<float> y(x.size());
  math.exp(x.size(), x.data(), y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], kInfinity);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_NEAR(y[5], std::exp(-100.0), 1.5e-45);  // subnormal
  EXPECT_EQ(y[6], 1.0f);
  math.erf(x.size(), x.data(), y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], -1.0f);
}

TEST(SimdMath, Avx2IsWithinTwoUlp) {
  if (!CpuFeatures::detect().avx2) GTEST_SKIP() << "this CPU has no AVX2";
  check_math(kMathAvx2);
}

TEST(SimdMath, Avx512IsWithinTwoUlp) {
  if (!CpuFeatures::detect().avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  check_math(kMathAvx512);
}

// --- activations ---

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

TEST(ActivationTest, FastVersionsAgreeWithTheReference) {
  for (const std::string& name : fast_implementations("activation")) {
    compare_activations<float>(name);
    compare_activations<bfloat16>(name);
  }
}

TEST(ActivationTest, ReferenceBackwardIsTheDerivativeOfForward) {
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

TEST(ActivationTest, KnownValues) {
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
  }
}

// --- dropout ---

// The specification of docs/numerics.md once more, written for one element and from the text.
bool keeps_by_hand(std::uint64_t seed, std::uint64_t step, std::uint32_t site, std::uint64_t sample,
                   float p, std::uint32_t row, std::uint32_t column) {
  const auto mix = [](std::uint64_t z) {
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  };
  const std::uint64_t key = mix(mix(mix(mix(seed) ^ step) ^ site) ^ sample);
  const std::uint32_t n = row * 32768u + column / 2;
  std::uint32_t w = n * 0x9E3779B9u + static_cast<std::uint32_t>(key);
  w ^= w >> 16;
  w *= 0x7FEB352Du;
  w ^= static_cast<std::uint32_t>(key >> 32);
  w ^= w >> 15;
  w *= 0x846CA68Bu;
  w ^= w >> 16;
  const std::uint32_t draw = column % 2 == 0 ? w & 0xFFFFu : w >> 16;
  return draw >= static_cast<std::uint32_t>(std::lround(p * 65536.0));
}

TEST(DropoutTest, EveryImplementationDrawsTheSpecifiedMask) {
  const Batch batch({3, 70, 1});
  const Dropout dropout{.p = 0.1f, .seed = 42, .step = 7, .site = dropout_site(3, 2)};
  for (const auto& implementation : implementations("dropout", CpuFeatures::detect())) {
    if (!implementation.reason.empty()) continue;
    Runtime runtime("dropout=" + implementation.implementation);
    for (const std::size_t columns : {1, 5, 16, 33, 47, 384}) {
      const std::vector<float> ones(batch.rows() * columns, 1.0f);
      std::vector<float> y(ones.size());
      dropout_forward(runtime.context(), batch.sequences(), columns, dropout, ones.data(),
                      y.data());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < batch.sequences().count(); ++i) {
        for (std::uint32_t row = 0; row < batch.sequences().rows_of(i); ++row) {
          for (std::uint32_t c = 0; c < columns; ++c) {
            const float want = keeps_by_hand(42, 7, 3 * 1024 + 2, 1000 + i, 0.1f, row, c)
                                   ? 1.0f / (1.0f - 0.1f)
                                   : 0.0f;
            wrong += y[(batch.sequences().row_begin[i] + row) * columns + c] != want;
          }
        }
      }
      EXPECT_EQ(wrong, 0u) << implementation.implementation << " columns " << columns;
    }
  }
}

TEST(DropoutTest, KeepsTheRightShare) {
  Runtime runtime;
  const Batch batch({512, 512});
  constexpr std::size_t columns = 1024;
  for (const float p : {0.05f, 0.1f, 0.5f}) {
    const Dropout dropout{.p = p, .seed = 1, .step = 1, .site = 1};
    const std::vector<float> ones(batch.rows() * columns, 1.0f);
    std::vector<float> y(ones.size());
    dropout_forward(runtime.context(), batch.sequences(), columns, dropout, ones.data(), y.data());
    double kept = 0;
    for (const float e : y) kept += e != 0.0f;
    const double share = kept / static_cast<double>(y.size());
    const double sigma = std::sqrt(p * (1.0 - p) / static_cast<double>(y.size()));
    EXPECT_NEAR(share, 1.0 - p, 4.0 * sigma + 1.0 / 131072.0)
        << p;  // the threshold is rounded to 1/65536
  }
}

// Masks of different sites, steps, samples and rows must look unrelated: two of them agree in about
// p^2 + (1-p)^2 of the elements.
TEST(DropoutTest, MasksOfDifferentKeysAreUnrelated) {
  const auto mask = [](std::uint64_t seed, std::uint64_t step, std::uint32_t site,
                       std::uint64_t sample) {
    return dropout_mask({.p = 0.5f, .seed = seed, .step = step, .site = site}, sample);
  };
  const DropoutMask base = mask(1, 1, 1, 1);
  const DropoutMask others[] = {mask(2, 1, 1, 1), mask(1, 2, 1, 1), mask(1, 1, 2, 1),
                                mask(1, 1, 1, 2)};
  constexpr std::uint32_t kRows = 256, kColumns = 256;
  const auto agreement = [&](const DropoutMask& other, std::uint32_t shift) {
    int same = 0;
    for (std::uint32_t r = 0; r < kRows; ++r) {
      for (std::uint32_t c = 0; c < kColumns; ++c)
        same += dropout_keeps(base, r, c) == dropout_keeps(other, r + shift, c);
    }
    return same / static_cast<double>(kRows * kColumns);
  };
  const double bound = 5.0 * 0.5 / std::sqrt(static_cast<double>(kRows * kColumns));
  for (const DropoutMask& other : others) EXPECT_NEAR(agreement(other, 0), 0.5, bound);
  for (const std::uint32_t shift : {1u, 2u, 128u}) EXPECT_NEAR(agreement(base, shift), 0.5, bound);
}

TEST(DropoutTest, ZeroProbabilityCopiesAndBadOnesAreRefused) {
  Runtime runtime;
  const Batch batch({4});
  const auto x = random_values<bfloat16>(4 * 20, 1);
  std::vector<bfloat16> y(x.size());
  dropout_forward(runtime.context(), batch.sequences(), 20, Dropout{}, x.data(), y.data());
  EXPECT_TRUE(same_bits(x, y));
  for (const float p : {-0.1f, 1.0f, kNan}) {
    EXPECT_THROW(
        dropout_forward(runtime.context(), batch.sequences(), 20, {.p = p}, x.data(), y.data()),
        InvalidArgument);
  }
  const std::vector<std::uint32_t> row_begin = {0, 4};
  const std::vector<std::uint32_t> keys = {4};
  EXPECT_THROW(dropout_forward(runtime.context(), {row_begin, keys, {}}, 20, {.p = 0.1f}, x.data(),
                               y.data()),
               InvalidArgument);
}

// --- layer normalisation ---

template <class T>
struct LayerNormCase {
  LayerNormCase(std::size_t hidden, float p)
      : batch({1, 7, 40}), H(hidden), dropout{.p = p, .seed = 5, .step = 6, .site = 7} {
    const std::size_t size = batch.rows() * H;
    x = random_values<T>(size, 1);
    residual = random_values(size, 2);
    gamma = random_values(H, 3);
    beta = random_values(H, 4);
    grad_y = random_values(size, 5);
  }
  Batch batch;
  std::size_t H;
  Dropout dropout;
  std::vector<T> x;
  std::vector<float> residual, gamma, beta, grad_y;
};

template <class T>
struct LayerNormResults {
  std::vector<float> y, sum, mean, rstd, grad_sum, grad_gamma, grad_beta;
  std::vector<T> y_copy, grad_x;
};

template <class T>
LayerNormResults<T> run(const Context& ctx, const LayerNormCase<T>& c, bool accumulate = false) {
  const std::size_t rows = c.batch.rows();
  const std::size_t size = rows * c.H;
  LayerNormResults<T> r;
  for (auto* v : {&r.y, &r.sum, &r.grad_sum}) v->resize(size);
  for (auto* v : {&r.mean, &r.rstd}) v->resize(rows);
  for (auto* v : {&r.y_copy, &r.grad_x}) v->resize(size);
  r.grad_gamma = random_values(c.H, 8);
  r.grad_beta = random_values(c.H, 9);
  dropout_add_layer_norm_forward<T>(ctx, c.batch.sequences(), c.H, c.dropout,
                                    {.x = c.x.data(),
                                     .residual = c.residual.data(),
                                     .gamma = c.gamma.data(),
                                     .beta = c.beta.data(),
                                     .eps = 1e-12f,
                                     .y = r.y.data(),
                                     .y_copy = r.y_copy.data(),
                                     .sum = r.sum.data(),
                                     .mean = r.mean.data(),
                                     .rstd = r.rstd.data()});
  dropout_add_layer_norm_backward<T>(ctx, c.batch.sequences(), c.H, c.dropout,
                                     {.grad_y = c.grad_y.data(),
                                      .sum = r.sum.data(),
                                      .mean = r.mean.data(),
                                      .rstd = r.rstd.data(),
                                      .gamma = c.gamma.data(),
                                      .grad_sum = r.grad_sum.data(),
                                      .grad_x = r.grad_x.data(),
                                      .grad_gamma = r.grad_gamma.data(),
                                      .grad_beta = r.grad_beta.data(),
                                      .accumulate = accumulate});
  return r;
}

template <class T>
void compare_layer_norm(const std::string& implementation, std::size_t H, float p) {
  const LayerNormCase<T> c(H, p);
  Runtime fast("layer_norm=" + implementation);
  Runtime reference("reference");
  const auto got = run(fast.context(), c, true);
  const auto want = run(reference.context(), c, true);
  const std::string what = fmt::format("{} H {} p {}", implementation, H, p);
  // Normalised values are below sqrt(H) and their error follows that of the mean, a sum of H terms
  // of magnitude 2; the smallest variance of a row magnifies it.
  const double smallest_deviation = 1.0 / largest_magnitude(want.rstd);
  const double bound =
      8.0 * std::sqrt(static_cast<double>(H)) * kFloatEpsilon / std::min(1.0, smallest_deviation);
  const auto constant = [](double b) { return [b](std::size_t) { return b; }; };
  expect_near(got.sum, want.sum, constant(4.0 * kFloatEpsilon), what + " sum");
  expect_near(got.mean, want.mean, constant(bound), what + " mean");
  expect_near(got.rstd, want.rstd, constant(bound * largest_magnitude(want.rstd)), what + " rstd");
  expect_near(got.y, want.y, constant(bound), what + " y");
  expect_near(got.y_copy, want.y_copy, constant(bound), what + " y copy");
  const double grad_bound = bound * std::max(1.0, largest_magnitude(want.grad_sum));
  expect_near(got.grad_sum, want.grad_sum, constant(grad_bound), what + " grad_sum");
  expect_near(got.grad_x, want.grad_x, constant(2.0 * grad_bound), what + " grad_x");
  const double rows_bound = bound * static_cast<double>(c.batch.rows());
  expect_near(got.grad_gamma, want.grad_gamma, constant(rows_bound), what + " grad_gamma");
  expect_near(got.grad_beta, want.grad_beta, constant(rows_bound), what + " grad_beta");
}

TEST(LayerNorm, FastVersionsAgreeWithTheReference) {
  for (const std::string& name : fast_implementations("layer_norm")) {
    for (const std::size_t H : {2, 32, 48, 129, 384}) {
      for (const float p : {0.0f, 0.1f}) {
        if (H == 2 && p > 0) continue;  // both elements dropped: a variance of rounding errors
        compare_layer_norm<float>(name, H, p);
        compare_layer_norm<bfloat16>(name, H, p);
      }
    }
  }
}

TEST(LayerNorm, ReferenceBackwardIsTheDerivativeOfForward) {
  Runtime runtime("reference");
  for (const float p : {0.0f, 0.25f}) {
    LayerNormCase<float> c(24, p);
    const auto r = run(runtime.context(), c);
    const auto loss = [&] { return weighted_sum(run(runtime.context(), c).y, c.grad_y); };
    expect_gradient(c.x, r.grad_x, loss, "x");
    expect_gradient(c.residual, r.grad_sum, loss, "residual");
    expect_gradient(c.gamma, r.grad_gamma, loss, "gamma");
    expect_gradient(c.beta, r.grad_beta, loss, "beta");
  }
}

TEST(LayerNorm, SameBitsForAnyNumberOfThreads) {
  for (const auto& row : implementations("layer_norm", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    LayerNormCase<bfloat16> c(48, 0.1f);
    c.batch = Batch({130, 77, 3});
    const std::size_t size = c.batch.rows() * c.H;
    c.x = random_values<bfloat16>(size, 1);
    c.residual = random_values(size, 2);
    c.grad_y = random_values(size, 3);
    Runtime one("layer_norm=" + row.implementation, 1);
    const auto want = run(one.context(), c);
    for (const int num_threads : {2, 3}) {
      Runtime many("layer_norm=" + row.implementation, num_threads);
      const auto got = run(many.context(), c);
      EXPECT_TRUE(same_bits(got.y, want.y)) << row.implementation;
      EXPECT_TRUE(same_bits(got.grad_x, want.grad_x)) << row.implementation;
      EXPECT_TRUE(same_bits(got.grad_gamma, want.grad_gamma)) << row.implementation;
      EXPECT_TRUE(same_bits(got.grad_beta, want.grad_beta)) << row.implementation;
    }
  }
}

TEST(LayerNorm, NanStaysInItsRow) {
  for (const auto& row : implementations("layer_norm", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    Runtime runtime("layer_norm=" + row.implementation);
    LayerNormCase<float> c(48, 0.0f);
    c.x[2 * 48 + 47] = kNan;
    const auto r = run(runtime.context(), c);
    EXPECT_TRUE(std::isnan(r.y[2 * 48])) << row.implementation;
    EXPECT_FALSE(std::isnan(r.y[3 * 48])) << row.implementation;
    EXPECT_FALSE(std::isnan(r.y[1 * 48])) << row.implementation;
  }
}

// --- embedding ---

struct EmbeddingCase {
  explicit EmbeddingCase(bool has_types) : with_types(has_types) {
    for (std::size_t row = 0; row < batch.rows(); ++row) {
      ids.push_back(static_cast<std::int32_t>(splitmix64(row) % 9));
      positions.push_back(static_cast<std::int32_t>(row % 8));
      types.push_back(static_cast<std::int32_t>(row % 2));
    }
  }
  EmbeddingIndices indices() const {
    return {.word = ids.data(),
            .position = positions.data(),
            .type = with_types ? types.data() : nullptr,
            .vocab_size = 9,
            .max_positions = 8,
            .type_vocab_size = with_types ? 2u : 0u};
  }
  static constexpr std::size_t H = 72;
  bool with_types;
  Batch batch{{5, 8, 70}};
  Dropout dropout{.p = 0.2f, .seed = 3, .step = 4, .site = 5};
  std::vector<std::int32_t> ids, positions, types;
  std::vector<float> word = random_values(9 * H, 1), position = random_values(8 * H, 2),
                     type = random_values(2 * H, 3);
  std::vector<float> gamma = random_values(H, 4), beta = random_values(H, 5);
  std::vector<float> grad_y = random_values(batch.rows() * H, 6);
};

struct EmbeddingResults {
  std::vector<float> y, sum, mean, rstd;
  std::vector<bfloat16> y_copy;
  std::vector<float> grad_word, grad_position, grad_type, grad_gamma, grad_beta;
};

EmbeddingResults run(const Context& ctx, const EmbeddingCase& c, std::int32_t padding_idx = -1,
                     bool accumulate = false) {
  const std::size_t rows = c.batch.rows();
  const std::size_t H = EmbeddingCase::H;
  EmbeddingResults r;
  for (auto* v : {&r.y, &r.sum}) v->resize(rows * H);
  for (auto* v : {&r.mean, &r.rstd}) v->resize(rows);
  r.y_copy.resize(rows * H);
  embedding_forward<bfloat16>(ctx, c.batch.sequences(), H, c.indices(), c.dropout,
                              {.word = c.word.data(),
                               .position = c.position.data(),
                               .type = c.with_types ? c.type.data() : nullptr,
                               .gamma = c.gamma.data(),
                               .beta = c.beta.data(),
                               .eps = 1e-12f,
                               .y = r.y.data(),
                               .y_copy = r.y_copy.data(),
                               .sum = r.sum.data(),
                               .mean = r.mean.data(),
                               .rstd = r.rstd.data()});
  r.grad_word.assign(9 * H, 1.0f);
  r.grad_position.assign(8 * H, 1.0f);
  r.grad_type.assign(2 * H, 1.0f);
  r.grad_gamma.assign(H, 1.0f);
  r.grad_beta.assign(H, 1.0f);
  std::vector<float> grad_y = c.grad_y;
  embedding_backward(ctx, c.batch.sequences(), H, c.indices(), c.dropout,
                     {.grad_y = grad_y.data(),
                      .sum = r.sum.data(),
                      .mean = r.mean.data(),
                      .rstd = r.rstd.data(),
                      .gamma = c.gamma.data(),
                      .grad_word = r.grad_word.data(),
                      .grad_position = r.grad_position.data(),
                      .grad_type = c.with_types ? r.grad_type.data() : nullptr,
                      .grad_gamma = r.grad_gamma.data(),
                      .grad_beta = r.grad_beta.data(),
                      .padding_idx = padding_idx,
                      .accumulate = accumulate});
  return r;
}

TEST(Embedding, ReferenceBackwardIsTheDerivativeOfForward) {
  Runtime runtime("reference");
  for (const bool with_types : {true, false}) {
    EmbeddingCase c(with_types);
    const EmbeddingResults r = run(runtime.context(), c);
    const auto loss = [&] { return weighted_sum(run(runtime.context(), c).y, c.grad_y); };
    expect_gradient(c.word, r.grad_word, loss, "word");
    expect_gradient(c.position, r.grad_position, loss, "position");
    if (with_types) expect_gradient(c.type, r.grad_type, loss, "type");
    expect_gradient(c.gamma, r.grad_gamma, loss, "gamma");
    expect_gradient(c.beta, r.grad_beta, loss, "beta");
  }
}

TEST(Embedding, FastVersionsAgreeWithTheReference) {
  const EmbeddingCase c(true);
  Runtime reference("reference");
  const EmbeddingResults want = run(reference.context(), c);
  for (const std::string& name : fast_implementations("layer_norm")) {
    Runtime fast(fmt::format("layer_norm={0},dropout={0},reduce={0}", name));
    const EmbeddingResults got = run(fast.context(), c);
    const double bound = 64.0 * kFloatEpsilon * std::sqrt(static_cast<double>(EmbeddingCase::H));
    const auto constant = [&](double factor) {
      return [b = bound * factor](std::size_t) { return b; };
    };
    expect_near(got.y, want.y, constant(1), name + " y");
    expect_near(got.y_copy, want.y_copy, constant(1), name + " y copy");
    expect_near(got.grad_word, want.grad_word, constant(4), name + " word");
    expect_near(got.grad_position, want.grad_position, constant(4), name + " position");
    expect_near(got.grad_type, want.grad_type, constant(8), name + " type");
  }
}

TEST(Embedding, PaddingRowGetsNoGradientAndAccumulateAdds) {
  Runtime runtime;
  const EmbeddingCase c(true);
  const EmbeddingResults plain = run(runtime.context(), c);
  const EmbeddingResults padded = run(runtime.context(), c, 4, true);
  const std::size_t H = EmbeddingCase::H;
  for (std::size_t i = 0; i < plain.grad_word.size(); ++i) {
    if (i / H == 4) {
      EXPECT_EQ(padded.grad_word[i], 1.0f);
    } else {
      EXPECT_NEAR(padded.grad_word[i], plain.grad_word[i] + 1.0f, 1e-5) << i;
    }
  }
  EXPECT_NEAR(padded.grad_type[0], plain.grad_type[0] + 1.0f, 1e-4);
  EXPECT_NEAR(padded.grad_gamma[0], plain.grad_gamma[0] + 1.0f, 1e-5);
}

TEST(Embedding, SameBitsForAnyNumberOfThreads) {
  const EmbeddingCase c(true);
  Runtime one("", 1);
  const EmbeddingResults want = run(one.context(), c);
  for (const int num_threads : {2, 3}) {
    Runtime many("", num_threads);
    const EmbeddingResults got = run(many.context(), c);
    EXPECT_TRUE(same_bits(got.y, want.y));
    EXPECT_TRUE(same_bits(got.grad_word, want.grad_word));
    EXPECT_TRUE(same_bits(got.grad_type, want.grad_type));
    EXPECT_TRUE(same_bits(got.grad_beta, want.grad_beta));
  }
}

TEST(Embedding, IdsOutsideTheTablesAreNamed) {
  Runtime runtime;
  EmbeddingCase c(true);
  c.ids[6] = 9;
  try {
    run(runtime.context(), c);
    FAIL() << "id 9 of a table with 9 rows must be refused";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "row 6 has word id 9, but the embedding table has 9 rows");
  }
}

// --- loss ---

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

// --- optimizer ---

struct AdamWState {
  std::vector<float> p, m, v;
  std::vector<bfloat16> copy;
};

AdamWState run_adamw(const Context& ctx, std::size_t count) {
  AdamWState s{random_values(count, 1), std::vector<float>(count), std::vector<float>(count),
               std::vector<bfloat16>(count)};
  for (std::int64_t t = 1; t <= 3; ++t) {
    const auto grad = random_values(count, 10 + static_cast<std::uint64_t>(t));
    adamw(ctx, count, {.lr = 1e-2, .weight_decay = 0.1, .step = t, .grad_scale = 0.5f}, grad.data(),
          s.p.data(), s.m.data(), s.v.data(), s.copy.data());
  }
  return s;
}

TEST(AdamW, MatchesTheFormulaInF64) {
  for (const auto& row : implementations("optimizer", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    for (const std::size_t count : kCounts) {
      Runtime runtime("optimizer=" + row.implementation);
      const AdamWState got = run_adamw(runtime.context(), count);
      const auto start = random_values(count, 1);
      for (std::size_t i = 0; i < count; ++i) {
        double p = static_cast<double>(start[i]), m = 0, v = 0;
        for (int t = 1; t <= 3; ++t) {
          const double g = 0.5 * static_cast<double>(
                                     random_values(i + 1, 10 + static_cast<std::uint64_t>(t))[i]);
          p *= 1.0 - 1e-2 * 0.1;
          m = 0.9 * m + 0.1 * g;
          v = 0.999 * v + 0.001 * g * g;
          p -= 1e-2 / (1.0 - std::pow(0.9, t)) * m /
               (std::sqrt(v) / std::sqrt(1.0 - std::pow(0.999, t)) + 1e-8);
        }
        ASSERT_NEAR(got.p[i], p, 1e-6) << row.implementation << " " << i;
        ASSERT_EQ(got.copy[i], to_bfloat16(got.p[i]));
        if (count > 1000 && i > 40) break;  // random_values(i) is quadratic; the elements are alike
      }
    }
  }
}

TEST(AdamW, SameBitsForAnyThreadsAndAnyCut) {
  for (const auto& row : implementations("optimizer", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    Runtime one("optimizer=" + row.implementation, 1);
    Runtime three("optimizer=" + row.implementation, 3);
    const AdamWState want = run_adamw(one.context(), 40000);
    const AdamWState got = run_adamw(three.context(), 40000);
    EXPECT_TRUE(same_bits(got.p, want.p) && same_bits(got.m, want.m) && same_bits(got.v, want.v))
        << row.implementation;
    // The same elements in two calls of odd sizes.
    AdamWState cut{random_values(100, 1), std::vector<float>(100), std::vector<float>(100),
                   std::vector<bfloat16>(100)};
    AdamWState whole = cut;
    const auto grad = random_values(100, 2);
    const AdamWStep step{.lr = 1e-3, .weight_decay = 0.01, .step = 1};
    adamw(one.context(), 100, step, grad.data(), whole.p.data(), whole.m.data(), whole.v.data(),
          nullptr);
    adamw(one.context(), 37, step, grad.data(), cut.p.data(), cut.m.data(), cut.v.data(), nullptr);
    adamw(one.context(), 63, step, grad.data() + 37, cut.p.data() + 37, cut.m.data() + 37,
          cut.v.data() + 37, nullptr);
    EXPECT_TRUE(same_bits(cut.p, whole.p)) << row.implementation;
  }
}

TEST(AdamW, StepsCountFromOne) {
  Runtime runtime;
  EXPECT_THROW(
      adamw(runtime.context(), 0, {.step = 0}, nullptr, nullptr, nullptr, nullptr, nullptr),
      InvalidArgument);
}

// --- sums and conversions ---

TEST(Reduce, FastVersionsAgreeWithTheReference) {
  Runtime reference("reference");
  for (const std::string& name : fast_implementations("reduce")) {
    Runtime fast("reduce=" + name);
    for (const std::size_t count : {1, 7, 16, 31, 389, 200000}) {
      const auto a = random_values(count, 1);
      const auto b = random_values(count, 2);
      const auto both = [&](auto f) {
        std::vector<float> got(count), want(count);
        f(fast.context(), got);
        f(reference.context(), want);
        EXPECT_TRUE(same_bits(got, want)) << name << " " << count;
      };
      both([&](const Context& ctx, std::vector<float>& y) {
        add_arrays(ctx, count, a.data(), b.data(), y.data());
      });
      both([&](const Context& ctx, std::vector<float>& y) {
        y = a;
        scale_array(ctx, count, 0.3f, y.data());
      });
      both([&](const Context& ctx, std::vector<float>& y) {
        std::vector<bfloat16> narrow(count);
        convert(ctx, count, a.data(), narrow.data());
        convert(ctx, count, narrow.data(), y.data());
      });
      std::vector<double> got(num_chunks(count, kNormChunk)), want(got.size());
      squared_norm_partials(fast.context(), count, a.data(), got.data());
      squared_norm_partials(reference.context(), count, a.data(), want.data());
      EXPECT_NEAR(sum_in_order(got), sum_in_order(want), 1e-12 * static_cast<double>(count));
    }
  }
}

TEST(Reduce, ConversionRoundsToNearestEvenAndKeepsNan) {
  const std::vector<float> x = {1.0f,
                                1.00390625f,
                                1.01171875f,
                                -1.00390625f,
                                kNan,
                                kInfinity,
                                -kInfinity,
                                3.4e38f,
                                1e-40f,
                                -0.0f,
                                std::bit_cast<float>(0x7F800001u),
                                1.0039063f};
  for (const auto& row : implementations("reduce", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    Runtime runtime("reduce=" + row.implementation);
    for (std::size_t repeat : {1u, 3u}) {  // in ragged ends and in whole vectors
      std::vector<float> many;
      for (std::size_t i = 0; i < repeat; ++i) many.insert(many.end(), x.begin(), x.end());
      std::vector<bfloat16> y(many.size());
      convert(runtime.context(), many.size(), many.data(), y.data());
      for (std::size_t i = 0; i < many.size(); ++i) {
        EXPECT_EQ(y[i].bits, to_bfloat16(many[i]).bits) << row.implementation << " element " << i;
      }
    }
  }
}

TEST(Reduce, SquaredNormPartialsDoNotDependOnWhoOwnsThem) {
  const std::size_t count = 3 * kNormChunk + 100;
  const auto x = random_values(count, 1);
  Runtime one("", 1);
  Runtime three("", 3);
  std::vector<double> whole(4), pieces(4);
  squared_norm_partials(one.context(), count, x.data(), whole.data());
  squared_norm_partials(three.context(), kNormChunk, x.data(), pieces.data());
  squared_norm_partials(three.context(), count - kNormChunk, x.data() + kNormChunk,
                        pieces.data() + 1);
  EXPECT_TRUE(same_bits(whole, pieces));
}

TEST(Sequences, BadOnesAreRefused) {
  const std::vector<std::uint32_t> good = {0, 4, 6};
  const std::vector<std::uint32_t> keys = {4, 2};
  EXPECT_NO_THROW(check_sequences({good, keys, {}}));
  EXPECT_EQ(sequence_of_row({good, keys, {}}, 3), 0u);
  EXPECT_EQ(sequence_of_row({good, keys, {}}, 4), 1u);
  const std::vector<std::uint32_t> empty_one = {0, 4, 4};
  const std::vector<std::uint32_t> too_many_keys = {5, 2};
  const std::vector<std::uint32_t> no_keys = {0, 2};
  const std::vector<std::uint32_t> one = {0, 4};
  EXPECT_THROW(check_sequences({empty_one, keys, {}}), InvalidArgument);
  EXPECT_THROW(check_sequences({good, too_many_keys, {}}), InvalidArgument);
  EXPECT_THROW(check_sequences({good, no_keys, {}}), InvalidArgument);
  EXPECT_THROW(check_sequences({one, keys, {}}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::kernels::testing
