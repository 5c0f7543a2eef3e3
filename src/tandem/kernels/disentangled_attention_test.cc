#include "tandem/kernels/disentangled_attention.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

struct PositionShape {
  std::vector<std::uint32_t> lengths;
  std::uint32_t pads;
  std::size_t heads, head_dim;
  std::size_t near;  // distances with a row of their own, to each side

  AttentionShape attention() const { return {heads, head_dim}; }
};

// One block and several, shared rows of far distances, pad rows, odd sizes.
const PositionShape kPositionShapes[] = {{{1}, 0, 1, 32, 4},        {{5, 1, 7}, 0, 2, 32, 3},
                                         {{17, 65}, 3, 2, 64, 100}, {{200, 33}, 5, 1, 32, 20},
                                         {{129, 64}, 64, 1, 64, 8}, {{40, 9}, 2, 3, 20, 40},
                                         {{31}, 0, 2, 7, 0},        {{300}, 7, 1, 64, 128}};

// Rows by distance: one each up to `near`, then one for every four distances.
std::vector<std::int32_t> rows_by_distance(std::size_t reach, std::size_t near) {
  std::vector<std::int32_t> rows;
  const auto bucket = [&](std::size_t distance) {
    return distance <= near ? distance : near + (distance - near + 3) / 4;
  };
  for (std::size_t d = reach; d > 0; --d)
    rows.push_back(static_cast<std::int32_t>(bucket(reach) - bucket(d)));
  for (std::size_t d = 0; d <= reach; ++d)
    rows.push_back(static_cast<std::int32_t>(bucket(reach) + bucket(d)));
  return rows;
}

template <class T>
struct PositionCase {
  PositionCase(const PositionShape& s, float p)
      : shape(s),
        batch(s.lengths, s.pads),
        hidden(s.attention().out_width()),
        width(s.attention().qkv_width()),
        dropout{.p = p, .seed = 42, .step = 3, .site = dropout_site(1, kAttentionSite)},
        // A reach beyond the longest sequence: the rows of these distances are not read.
        row_of(rows_by_distance(*std::max_element(s.lengths.begin(), s.lengths.end()) + 2, s.near)),
        qkv(random_values<T>(batch.rows() * width, 1)),
        grad_out(random_values<T>(batch.rows() * hidden, 2)),
        positions(random_values<T>((static_cast<std::size_t>(row_of.back()) + 1) * width, 3)) {}

  std::size_t rows() const { return positions.size() / width; }
  RelativePositions<T> relative() const {
    return {.row_of = row_of, .rows = rows(), .qkv = positions.data()};
  }

  PositionShape shape;
  Batch batch;
  std::size_t hidden, width;
  Dropout dropout;
  std::vector<std::int32_t> row_of;
  std::vector<T> qkv, grad_out, positions;
};

template <class T>
struct PositionResults {
  std::vector<T> out;
  std::vector<float> log_sum_exp;
  std::vector<T> grad_qkv, grad_positions;
};

template <class T>
PositionResults<T> run_positions(const Context& ctx, const PositionCase<T>& c,
                                 const PositionResults<T>* forward = nullptr) {
  const T nothing = to_storage<T>(7.0f);
  PositionResults<T> r{
      std::vector<T>(c.batch.rows() * c.hidden), std::vector<float>(c.shape.heads * c.batch.rows()),
      std::vector<T>(c.qkv.size(), nothing), std::vector<T>(c.positions.size(), nothing)};
  disentangled_attention_forward(ctx, c.batch.sequences(), c.shape.attention(), c.dropout,
                                 c.relative(), c.qkv.data(), r.out.data(), r.log_sum_exp.data());
  // Both versions differentiate the same saved values, so that only backward is compared.
  const PositionResults<T>& saved = forward != nullptr ? *forward : r;
  std::vector<float> memory(
      disentangled_attention_memory(c.shape.lengths.size(), c.rows(), c.shape.attention()),
      std::nanf(""));
  disentangled_attention_backward(ctx, c.batch.sequences(), c.shape.attention(), c.dropout,
                                  c.relative(), c.qkv.data(), saved.out.data(),
                                  saved.log_sum_exp.data(), c.grad_out.data(), r.grad_qkv.data(),
                                  r.grad_positions.data(), memory);
  return r;
}

template <class T>
double distance_of(const std::vector<T>& a, const std::vector<T>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = to_float(a[i]), y = to_float(b[i]);
    difference += (x - y) * (x - y);
    size += y * y;
  }
  // Gradients of a text of one token are 0 in exact arithmetic.
  return std::sqrt(difference) / std::max(std::sqrt(size), 0.1);
}

// The relative distance that rounding allows: of f32 sums, of the bf16 results, and of bf16 P, dS
// and their sums, each rounded once.
template <class T>
double allowed_distance(const std::string& implementation) {
  if (std::is_same_v<T, float>) return 1e-5;
  const bool rounds = implementation.starts_with("avx512bf16") || implementation.starts_with("amx");
  return rounds ? 0x1p-7 : 0x1p-8;
}

template <class T>
void compare_positions(const PositionShape& shape, float p) {
  const PositionCase<T> c(shape, p);
  Runtime reference("reference");
  const PositionResults<T> want = run_positions(reference.context(), c);
  for (const std::string& name : fast_implementations("attention")) {
    Runtime fast("attention=" + name);
    const PositionResults<T> got = run_positions(fast.context(), c, &want);
    const double allowed = allowed_distance<T>(name);
    const std::string what =
        fmt::format("{} rows {} heads {}x{} near {} p {}", name, c.batch.rows(), shape.heads,
                    shape.head_dim, shape.near, p);
    EXPECT_LE(distance_of(got.out, want.out), allowed) << what;
    EXPECT_LE(distance_of(got.log_sum_exp, want.log_sum_exp), 1e-5) << what;
    EXPECT_LE(distance_of(got.grad_qkv, want.grad_qkv), allowed) << what;
    EXPECT_LE(distance_of(got.grad_positions, want.grad_positions), allowed) << what;
  }
}

TEST(DisentangledAttention, FastVersionsAgreeWithTheReference) {
  for (const PositionShape& shape : kPositionShapes) {
    for (const float p : {0.0f, 0.1f}) {
      compare_positions<float>(shape, p);
      compare_positions<bfloat16>(shape, p);
    }
  }
}

TEST(DisentangledAttention, ReferenceBackwardIsTheDerivativeOfForward) {
  for (const float p : {0.0f, 0.25f}) {
    PositionCase<float> c({{6, 4}, 1, 2, 5, 2}, p);
    Runtime runtime("reference");
    const PositionResults<float> r = run_positions(runtime.context(), c);
    const auto loss = [&] {
      return weighted_sum(run_positions(runtime.context(), c).out, c.grad_out);
    };
    expect_gradient(c.qkv, r.grad_qkv, loss, fmt::format("qkv, p = {}", p));
    expect_gradient(c.positions, r.grad_positions, loss, fmt::format("positions, p = {}", p));
  }
}

// Scores written out by hand: two keys, one column; distances -1, 0 and 1 have a row each.
TEST(DisentangledAttention, ReferenceComputesASmallCaseByHand) {
  const std::vector<float> qkv = {/*row 0: q k v*/ 1, 0.5f, 10,
                                  /*row 1*/ 2,        1,    20};
  const std::vector<float> positions = {0.1f, 0.2f, 0, 0.3f, 0.4f, 0, 0.5f, 0.6f, 0};
  const std::vector<std::int32_t> row_of = {0, 1, 2};
  const Batch batch({2});
  Runtime runtime("reference");
  std::vector<float> out(2), lse(2);
  disentangled_attention_forward<float>(runtime.context(), batch.sequences(), {1, 1}, Dropout{},
                                        {.row_of = row_of, .rows = 3, .qkv = positions.data()},
                                        qkv.data(), out.data(), lse.data());
  const auto score = [&](std::size_t row, std::size_t key) {
    const std::size_t at = 3 * (key + 1 - row);
    const double q = qkv[3 * row], k = qkv[3 * key + 1];
    return (q * k + q * static_cast<double>(positions[at + 1]) +
            k * static_cast<double>(positions[at])) /
           std::sqrt(3.0);
  };
  for (std::size_t row = 0; row < 2; ++row) {
    const double first = std::exp(score(row, 0)), second = std::exp(score(row, 1));
    EXPECT_NEAR(out[row], (10.0 * first + 20.0 * second) / (first + second), 1e-5);
    EXPECT_NEAR(lse[row], std::log(first + second), 1e-6);
  }
}

// With zeros as positions, the scores differ from those without positions in their scale only.
TEST(DisentangledAttention, PositionsOfZerosAreAttentionWithAnotherScale) {
  PositionCase<float> c({{20, 9}, 2, 2, 32, 5}, 0.1f);
  std::ranges::fill(c.positions, 0.0f);
  Runtime runtime("reference");
  const PositionResults<float> got = run_positions(runtime.context(), c);
  std::vector<float> scaled = c.qkv, want(got.out.size()), lse(got.log_sum_exp.size());
  for (std::size_t i = 0; i < scaled.size(); ++i)
    if (i % c.width < c.hidden) scaled[i] /= std::sqrt(3.0f);
  attention_forward(runtime.context(), c.batch.sequences(), c.shape.attention(), c.dropout,
                    scaled.data(), want.data(), lse.data());
  EXPECT_LE(distance_of(got.out, want), 1e-6);
}

template <class T>
void expect_same_position_bits(const PositionResults<T>& got, const PositionResults<T>& want,
                               const std::string& what) {
  EXPECT_TRUE(same_bits(got.out, want.out)) << what;
  EXPECT_TRUE(same_bits(got.log_sum_exp, want.log_sum_exp)) << what;
  EXPECT_TRUE(same_bits(got.grad_qkv, want.grad_qkv)) << what;
  EXPECT_TRUE(same_bits(got.grad_positions, want.grad_positions)) << what;
}

template <class T>
void expect_emulated_positions(const std::string& name, const PositionShape& shape) {
  const PositionCase<T> c(shape, 0.1f);
  Runtime fast("attention=" + name), slow("attention=" + emulation_of(name));
  expect_same_position_bits(run_positions(fast.context(), c), run_positions(slow.context(), c),
                            fmt::format("{} head of {}", name, shape.head_dim));
}

class EmulatedDisentangledAttention : public ::testing::TestWithParam<const char*> {};

TEST_P(EmulatedDisentangledAttention, ComputesTheBitsOfTheHardware) {
  const std::string name = GetParam();
  if (const std::string reason = obstacle("attention", name); !reason.empty())
    GTEST_SKIP() << reason;
  for (const PositionShape& shape : kPositionShapes) {
    expect_emulated_positions<float>(name, shape);
    expect_emulated_positions<bfloat16>(name, shape);
  }
}

INSTANTIATE_TEST_SUITE_P(, EmulatedDisentangledAttention,
                         ::testing::Values("avx2", "avx512", "avx512bf16", "amx"),
                         [](const auto& test) { return std::string(test.param); });

// More sequences than groups, of which each thread has some.
TEST(DisentangledAttention, SameBitsForAnyNumberOfThreads) {
  const std::vector<std::uint32_t> lengths = {50, 7, 33, 4, 4, 9,  1,  2,  3,
                                              5,  6, 7,  8, 9, 10, 11, 12, 40};
  const PositionCase<bfloat16> c({lengths, 2, 2, 32, 9}, 0.1f);
  for (const std::string& name : running_implementations("attention")) {
    Runtime one("attention=" + name, 1);
    const PositionResults<bfloat16> want = run_positions(one.context(), c);
    for (const int num_threads : {2, 3}) {
      Runtime many("attention=" + name, num_threads);
      expect_same_position_bits(run_positions(many.context(), c), want, name);
    }
  }
}

// Reductions must be padded with zeros, whatever the scratch memory held before.
TEST(DisentangledAttention, ScratchMayHoldAnything) {
  for (const std::string& name : fast_implementations("attention")) {
    for (const PositionShape& shape : kPositionShapes) {
      const PositionCase<bfloat16> c(shape, 0.1f);
      Runtime runtime("attention=" + name, 1);
      const PositionResults<bfloat16> want = run_positions(runtime.context(), c);
      for (float& x : runtime.context().scratch.of_thread<float>(0, Scratch::kThreadBytes / 4))
        x = std::nanf("");
      for (float& x : runtime.context().scratch.shared<float>(1 << 16)) x = std::nanf("");
      expect_same_position_bits(run_positions(runtime.context(), c), want, name);
    }
  }
}

template <class T>
void first_rows_with_positions(const std::string& implementation) {
  Runtime runtime("attention=" + implementation, 2, kPrecisionOf<T>);
  for (const PositionShape& shape : kPositionShapes) {
    const PositionCase<T> c(shape, 0.1f);
    const PositionResults<T> all = run_positions(runtime.context(), c);
    std::vector<T> want(all.out.size(), to_storage<T>(7.0f)), out = want;
    std::vector<float> log_sum_exp(all.log_sum_exp.size());
    disentangled_attention_forward_first_rows(runtime.context(), c.batch.sequences(),
                                              shape.attention(), c.dropout, c.relative(),
                                              c.qkv.data(), out.data(), log_sum_exp.data());
    for (std::size_t i = 0; i < shape.lengths.size(); ++i) {
      const std::size_t begin = c.batch.sequences().row_begin[i] * c.hidden;
      std::copy_n(all.out.begin() + static_cast<std::ptrdiff_t>(begin), c.hidden,
                  want.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    EXPECT_TRUE(same_bits(out, want)) << implementation << " " << shape.head_dim;
  }
}

TEST(DisentangledAttention, FirstRowsAloneHaveTheSameBits) {
  for (const std::string& name : running_implementations("attention", Precision::kFloat32))
    first_rows_with_positions<float>(name);
  for (const std::string& name : running_implementations("attention"))
    first_rows_with_positions<bfloat16>(name);
}

TEST(DisentangledAttention, PositionsMustReachAllRows) {
  Runtime runtime;
  PositionCase<float> c({{6, 4}, 0, 1, 8, 3}, 0.0f);
  c.row_of = rows_by_distance(5, 3);
  run_positions(runtime.context(), c);
  c.row_of = rows_by_distance(4, 3);
  EXPECT_THROW(run_positions(runtime.context(), c), InvalidArgument);
}

TEST(DisentangledAttention, WindowsAndSharedKeysAreRefused) {
  Runtime runtime;
  const PositionCase<float> c({{3}, 0, 4, 8, 3}, 0.0f);
  std::vector<float> out(c.batch.rows() * c.hidden), log_sum_exp(4 * c.batch.rows());
  const auto forward = [&](const AttentionShape& shape) {
    disentangled_attention_forward(runtime.context(), c.batch.sequences(), shape, c.dropout,
                                   c.relative(), c.qkv.data(), out.data(), log_sum_exp.data());
  };
  forward({4, 8});
  EXPECT_THROW(forward({4, 8, 2}), InvalidArgument);
  EXPECT_THROW(forward({4, 8, 0, Window::causal()}), InvalidArgument);
}

// Row i of the positions draws as row first + i, and backward has forward's mask.
TEST(DisentangledAttention, DropoutOfPositionsCountsRowsFromTheGivenOne) {
  Runtime runtime;
  const Dropout dropout{.p = 0.3f, .seed = 5, .step = 2, .site = 6};
  const std::vector<float> x(6 * 20, 1.0f);
  std::vector<float> all(x.size()), last(4 * 20), sum(4 * 20, 2.0f);
  dropout_positions(runtime.context(), dropout, 7, 6, 20, x.data(), all.data());
  dropout_positions(runtime.context(), dropout, 9, 4, 20, x.data(), last.data());
  EXPECT_TRUE(same_bits(last, std::vector<float>(all.begin() + 40, all.end())));
  EXPECT_GT(std::ranges::count(all, 0.0f), 10);
  dropout_positions_backward(runtime.context(), dropout, 9, 4, 20, x.data(), sum.data());
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_FLOAT_EQ(sum[i], last[i] + 2.0f);
}

}  // namespace
}  // namespace tandem::kernels::testing
