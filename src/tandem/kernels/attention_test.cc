#include "tandem/kernels/attention.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/kernels/attention_test_support.h"

namespace tandem::kernels::testing {
namespace {

// Less than a block of queries and more, odd and even; 64 is ModernBERT's.
constexpr std::size_t kWindows[] = {0, 3, 16, 64};
// Decoders: query heads that share keys, whole and partial blocks, heads of 64 and 128 columns.
const Shape kGroupedShapes[] = {{{1}, 0, 2, 32, 1},
                                {{5, 1, 130}, 0, 4, 8, 2},
                                {{300, 20}, 0, 3, 64, 1},
                                {{65, 64}, 3, 2, 128, 2},
                                {{200}, 40, 6, 20, 2}};
// Several blocks; pad rows without keys; a sequence that its window holds.
const Shape kLongShapes[] = {{{300, 20}, 0, 2, 32}, {{150}, 40, 1, 64}, {{200}, 3, 2, 20}};

bool outside(const Window& window, std::size_t row, std::size_t key) {
  return key > row ? key - row > window.after : row - key > window.before;
}

// The most that rounding P and dS to bf16 can change each element: 2^-8 times the same sums over
// the magnitudes of their terms. For kernels whose products take pairs of bf16.
struct OperandRounding {
  std::vector<double> out, grad_qkv;

  template <class T>
  OperandRounding(const Case<T>& c, const Results<T>& saved)
      : out(saved.out.size()), grad_qkv(c.qkv.size()) {
    const Sequences sequences = c.batch.sequences();
    for (std::size_t i = 0; i < sequences.count(); ++i) {
      for (std::size_t head = 0; head < c.shape.heads; ++head)
        add_head(c, saved, sequences, i, head);
    }
  }

 private:
  static constexpr double kUnit = 0x1p-8;  // half a step of 8 significant bits

  template <class T>
  void add_head(const Case<T>& c, const Results<T>& saved, const Sequences& sequences,
                std::size_t sequence, std::size_t head) {
    const std::size_t D = c.shape.head_dim;
    const std::size_t H = c.hidden;
    const double scale = 1.0 / std::sqrt(static_cast<double>(D));
    const std::size_t begin = sequences.row_begin[sequence];
    const auto q_of = [&](std::size_t row) { return (begin + row) * c.width + head * D; };
    const std::size_t key_heads = c.shape.attention().kv_heads();
    const std::size_t key_head = head / (c.shape.heads / key_heads);
    const auto k_of = [&](std::size_t row) { return (begin + row) * c.width + H + key_head * D; };
    const auto out_of = [&](std::size_t row) { return (begin + row) * H + head * D; };
    const auto dot = [D](const std::vector<T>& a, std::size_t i, const std::vector<T>& b,
                         std::size_t j) {
      double sum = 0;
      for (std::size_t d = 0; d < D; ++d)
        sum += static_cast<double>(to_float(a[i + d])) * static_cast<double>(to_float(b[j + d]));
      return sum;
    };
    const double keep = 1.0 / (1.0 - static_cast<double>(c.dropout.p));
    for (std::size_t row = 0; row < sequences.rows_of(sequence); ++row) {
      const double lse = saved.log_sum_exp[head * c.batch.rows() + begin + row];
      const double delta = dot(c.grad_out, out_of(row), saved.out, out_of(row));
      for (std::size_t key = 0; key < sequences.key_count[sequence]; ++key) {
        if (outside(c.window, row, key)) continue;
        const std::size_t k = k_of(key);
        const std::size_t v = k + key_heads * D;
        const double p =
            std::exp(scale * dot(c.qkv, q_of(row), c.qkv, k) + c.bias_of(head, row, key) - lse);
        const double grad_p = dot(c.grad_out, out_of(row), c.qkv, v);
        // Kept or dropped.
        const double grad_s = p * std::max(std::abs(keep * grad_p - delta), std::abs(delta));
        for (std::size_t d = 0; d < D; ++d) {
          const auto magnitude = [d](const std::vector<T>& x, std::size_t i) {
            return kUnit * std::abs(static_cast<double>(to_float(x[i + d])));
          };
          out[out_of(row) + d] += p * keep * magnitude(c.qkv, v);
          grad_qkv[q_of(row) + d] += scale * grad_s * magnitude(c.qkv, k);
          grad_qkv[k + d] += scale * grad_s * magnitude(c.qkv, q_of(row));
          grad_qkv[v + d] += p * keep * magnitude(c.grad_out, out_of(row));
        }
      }
    }
  }
};

template <class T>
void compare(const std::string& implementation, const Case<T>& c, const Results<T>& want,
             const OperandRounding& operands) {
  Runtime fast("attention=" + implementation);
  const Results<T> got = run(fast.context(), c, &want);
  const Shape& shape = c.shape;
  const float p = c.dropout.p;
  const std::string what = fmt::format(
      "{} rows {} heads {}x{} keys {} p {} window {} {}", implementation, c.batch.rows(),
      shape.heads, shape.head_dim, shape.key_heads, p, static_cast<std::ptrdiff_t>(c.window.before),
      static_cast<std::ptrdiff_t>(c.window.after));
  // Every element is a sum over keys (or queries) of factors that are themselves sums over
  // head_dim.
  const double rounding =
      8.0 * kFloatEpsilon * std::sqrt(static_cast<double>(c.batch.rows() + shape.head_dim));
  const double out_bound = rounding * largest_magnitude(c.qkv) / (1.0 - static_cast<double>(p));
  const double grad_bound = rounding * std::max(1.0, largest_magnitude(want.grad_qkv)) * 2.0;
  const bool rounds = std::is_same_v<T, bfloat16> && (implementation.starts_with("avx512bf16") ||
                                                      implementation.starts_with("amx"));
  const double share = rounds ? 1.0 : 0.0;
  const auto allowed = [share](double f32, const std::vector<double>& bf16) {
    return [share, f32, &bf16](std::size_t i) { return f32 + share * bf16[i]; };
  };
  expect_near(got.out, want.out, allowed(out_bound, operands.out), what + " out");
  expect_near(
      got.log_sum_exp, want.log_sum_exp, [&](std::size_t) { return rounding * 4.0; },
      what + " log_sum_exp");
  expect_near(got.grad_qkv, want.grad_qkv, allowed(grad_bound, operands.grad_qkv),
              what + " grad_qkv");
  // dS is added up before it is rounded.
  const double bias_bound = rounding * std::max(1.0, largest_magnitude(want.grad_bias)) * 2.0;
  expect_near(
      got.grad_bias, want.grad_bias, [&](std::size_t) { return bias_bound; }, what + " grad_bias");
}

template <class T>
void compare_all(const Shape& shape, float p, Bias bias, const Window& window = {}) {
  const Case<T> c = windowed<T>(window, shape, p, bias);
  Runtime reference("reference");
  const Results<T> want = run(reference.context(), c);
  const OperandRounding operands(c, want);
  for (const std::string& name : fast_implementations("attention"))
    compare(name, c, want, operands);
}

TEST(Attention, FastVersionsAgreeWithTheReference) {
  for (const Shape& shape : kShapes) {
    for (const float p : {0.0f, 0.1f}) {
      for (const Bias bias : {Bias::kNone, Bias::kByDistance}) {
        compare_all<float>(shape, p, bias);
        compare_all<bfloat16>(shape, p, bias);
      }
    }
  }
}

TEST(Attention, WindowsAgreeWithTheReference) {
  for (const Shape& shape : kLongShapes) {
    for (const std::size_t window : kWindows) {
      for (const float p : {0.0f, 0.1f}) {
        compare_all<float>(shape, p, Bias::kNone, Window::around(window));
        compare_all<bfloat16>(shape, p, Bias::kByDistance, Window::around(window));
      }
    }
  }
}

TEST(Attention, SharedKeysAgreeWithTheReference) {
  for (const Shape& shape : kGroupedShapes) {
    for (const Window& window : {Window{}, Window::causal(), Window{16, 0}, Window{3, 40}}) {
      compare_all<float>(shape, /*p=*/0.1f, Bias::kNone, window);
      compare_all<bfloat16>(shape, /*p=*/0.1f, Bias::kNone, window);
    }
  }
}

// The longest text of ModernBERT.
TEST(Attention, AWindowOfALongTextAgreesWithTheReference) {
  compare_all<float>({{8192}, 0, 1, 8}, 0.1f, Bias::kNone, Window::around(64));
}

template <class T>
void expect_same_bits(const std::string& implementation, const std::string& reference_run,
                      const Case<T>& c, const std::string& what) {
  Runtime fast("attention=" + implementation);
  Runtime slow("attention=" + reference_run);
  const Results<T> got = run(fast.context(), c);
  const Results<T> want = run(slow.context(), c);
  EXPECT_TRUE(same_bits(got.out, want.out)) << what;
  EXPECT_TRUE(same_bits(got.log_sum_exp, want.log_sum_exp)) << what;
  EXPECT_TRUE(same_bits(got.grad_qkv, want.grad_qkv)) << what;
  EXPECT_TRUE(same_bits(got.grad_bias, want.grad_bias)) << what;
}

class EmulatedAttention : public ::testing::TestWithParam<const char*> {};

// Layouts, padding, rounding and the order of sums are in the emulation, so it is the whole kernel
// that is compared here; see also bf16_instructions_test.cc.
TEST_P(EmulatedAttention, ComputesTheBitsOfTheHardware) {
  const std::string name = GetParam();
  if (const std::string reason = obstacle("attention", name); !reason.empty())
    GTEST_SKIP() << reason;
  const std::string reference_run = emulation_of(name);
  for (const Shape& shape : kShapes) {
    for (const float p : {0.0f, 0.1f}) {
      const std::string what =
          fmt::format("{} heads {}x{} p {}", name, shape.heads, shape.head_dim, p);
      Case<bfloat16> c(shape, p);
      expect_same_bits(name, reference_run, c, what);
      expect_same_bits(name, reference_run, Case<float>(shape, p), what + " f32");
      expect_same_bits(name, reference_run, Case<bfloat16>(shape, p, Bias::kByDistance),
                       what + " bias");
      expect_same_bits(name, reference_run, Case<float>(shape, p, Bias::kByDistance),
                       what + " f32 bias");
      if (p == 0.0f) continue;
      // Probabilities, and products with them, that are denormal.
      for (bfloat16& x : c.qkv) x = to_bfloat16(to_float(x) * 30.0f);
      for (bfloat16& x : c.grad_out) x = to_bfloat16(to_float(x) * 0x1p-120f);
      expect_same_bits(name, reference_run, c, what + " denormal");
    }
  }
}

TEST_P(EmulatedAttention, ComputesTheBitsOfTheHardwareInAWindow) {
  const std::string name = GetParam();
  if (const std::string reason = obstacle("attention", name); !reason.empty())
    GTEST_SKIP() << reason;
  for (const Shape& shape : kLongShapes) {
    for (const std::size_t window : kWindows) {
      const std::string what = fmt::format("{} head of {} window {}", name, shape.head_dim, window);
      expect_same_bits(name, emulation_of(name),
                       windowed<bfloat16>(Window::around(window), shape, 0.1f), what);
      expect_same_bits(name, emulation_of(name),
                       windowed<float>(Window::around(window), shape, 0.1f), what);
    }
  }
  for (const Shape& shape : kGroupedShapes) {
    const std::string what = fmt::format("{} head of {} causal", name, shape.head_dim);
    const Window causal = Window::causal();
    expect_same_bits(name, emulation_of(name), windowed<bfloat16>(causal, shape, 0.1f), what);
    expect_same_bits(name, emulation_of(name), windowed<float>(causal, shape, 0.1f), what);
  }
}

INSTANTIATE_TEST_SUITE_P(, EmulatedAttention,
                         ::testing::Values("avx2", "avx512", "avx512bf16", "amx"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Attention, ReferenceBackwardIsTheDerivativeOfForward) {
  for (const float p : {0.0f, 0.25f}) {
    Case<float> c({{6, 4}, 1, 2, 5}, p);
    Runtime runtime("reference");
    const Results<float> r = run(runtime.context(), c);
    const auto loss = [&] { return weighted_sum(run(runtime.context(), c).out, c.grad_out); };
    expect_gradient(c.qkv, r.grad_qkv, loss, fmt::format("p = {}", p));
  }
}

TEST(Attention, ReferenceBackwardIsTheDerivativeInAWindow) {
  for (const std::size_t window : {0, 2}) {
    Case<float> c =
        windowed<float>(Window::around(window), {{6, 4}, 3, 2, 5}, 0.25f, Bias::kByDistance);
    Runtime runtime("reference");
    const Results<float> r = run(runtime.context(), c);
    const auto loss = [&] { return weighted_sum(run(runtime.context(), c).out, c.grad_out); };
    expect_gradient(c.qkv, r.grad_qkv, loss, fmt::format("qkv, window {}", window));
    expect_gradient(c.band, r.grad_bias, loss, fmt::format("bias, window {}", window));
  }
}

TEST(Attention, ReferenceBackwardIsTheDerivativeForSharedKeys) {
  for (const Window& window : {Window::causal(), Window{2, 1}}) {
    Case<float> c = windowed<float>(window, {{6, 4}, 1, 4, 5, 2}, 0.25f);
    Runtime runtime("reference");
    const Results<float> r = run(runtime.context(), c);
    const auto loss = [&] { return weighted_sum(run(runtime.context(), c).out, c.grad_out); };
    expect_gradient(c.qkv, r.grad_qkv, loss, fmt::format("after {}", window.after));
  }
}

// Heads of keys that are repeated for each query head give the same rows.
template <class T>
void repeated_keys_have_the_same_bits(const std::string& implementation) {
  Runtime runtime("attention=" + implementation, 2, kPrecisionOf<T>);
  const Case<T> shared = windowed<T>(Window::causal(), {{90, 40}, 0, 4, 32, 2}, 0.1f);
  Case<T> repeated = windowed<T>(Window::causal(), {{90, 40}, 0, 4, 32}, 0.1f);
  for (std::size_t i = 0; i < repeated.qkv.size(); ++i) {
    const std::size_t row = i / repeated.width, column = i % repeated.width;
    const std::size_t head = column / 32, d = column % 32;
    const std::size_t from = head < 4 ? head : (head < 8 ? 4 + (head - 4) / 2 : 6 + (head - 8) / 2);
    repeated.qkv[i] = shared.qkv[row * shared.width + from * 32 + d];
  }
  const Results<T> want = run(runtime.context(), repeated);
  const Results<T> got = run(runtime.context(), shared);
  EXPECT_TRUE(same_bits(got.out, want.out)) << implementation;
  EXPECT_TRUE(same_bits(got.log_sum_exp, want.log_sum_exp)) << implementation;
}

TEST(Attention, SharedKeysHaveTheBitsOfRepeatedKeys) {
  for (const std::string& name : running_implementations("attention"))
    repeated_keys_have_the_same_bits<bfloat16>(name);
  for (const std::string& name : running_implementations("attention", Precision::kFloat32))
    repeated_keys_have_the_same_bits<float>(name);
}

// Rows behind a row change no bit of it.
TEST(Attention, ACausalRowDoesNotDependOnLaterRows) {
  for (const std::string& name : running_implementations("attention")) {
    Runtime runtime("attention=" + name);
    Case<bfloat16> c = windowed<bfloat16>(Window::causal(), {{150}, 0, 4, 32, 2}, 0.1f);
    const Results<bfloat16> before = run(runtime.context(), c);
    constexpr std::size_t kRows = 70;
    for (std::size_t i = kRows * c.width; i < c.qkv.size(); ++i) c.qkv[i] = to_bfloat16(3.0f);
    const Results<bfloat16> after = run(runtime.context(), c);
    const auto first = [&](const std::vector<bfloat16>& out) {
      return std::vector<bfloat16>(out.begin(), out.begin() + kRows * c.hidden);
    };
    EXPECT_TRUE(same_bits(first(before.out), first(after.out))) << name;
    EXPECT_FALSE(same_bits(before.out, after.out)) << name;
  }
}

TEST(Attention, HeadsMustBeAMultipleOfTheirKeys) {
  Runtime runtime;
  const Case<float> c({{3}, 0, 4, 8, 2}, 0.0f);
  std::vector<float> out(c.batch.rows() * c.hidden), log_sum_exp(4 * c.batch.rows());
  const auto forward = [&](const AttentionShape& shape, const PositionBias* bias) {
    attention_forward(runtime.context(), c.batch.sequences(), shape, c.dropout, c.qkv.data(),
                      out.data(), log_sum_exp.data(), bias);
  };
  forward({4, 8, 2}, nullptr);
  EXPECT_THROW(forward({4, 8, 3}, nullptr), InvalidArgument);
  const std::vector<float> band(4 * 9);
  const PositionBias bias{.reach = 4, .values = band.data()};
  EXPECT_THROW(forward({4, 8, 2}, &bias), InvalidArgument);
}

TEST(Attention, AWindowThatHoldsASequenceChangesNoBit) {
  for (const std::string& name : running_implementations("attention")) {
    Runtime runtime("attention=" + name);
    const Shape shape{{90, 40}, 2, 2, 32};
    const Results<bfloat16> want = run(runtime.context(), Case<bfloat16>(shape, 0.1f));
    const Results<bfloat16> got =
        run(runtime.context(), windowed<bfloat16>(Window::around(91), shape, 0.1f));
    EXPECT_TRUE(same_bits(got.out, want.out)) << name;
    EXPECT_TRUE(same_bits(got.log_sum_exp, want.log_sum_exp)) << name;
    EXPECT_TRUE(same_bits(got.grad_qkv, want.grad_qkv)) << name;
  }
}

TEST(Attention, PairsAreThoseOfTheWindow) {
  for (const std::size_t rows : {1, 5, 9}) {
    for (const std::size_t keys : {1, 4, 9}) {
      for (const std::size_t window : {0, 1, 3, 8, 20}) {
        std::size_t count = 0;
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t key = 0; key < keys; ++key)
            count += std::max(row, key) - std::min(row, key) <= window ? 1 : 0;
        EXPECT_EQ(attention_pairs(rows, keys, Window::around(window)), static_cast<double>(count))
            << rows << " rows, " << keys << " keys, window " << window;
        std::size_t one_side = 0;
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t key = 0; key < keys; ++key)
            one_side += outside({kAllKeys, window}, row, key) ? 0 : 1;
        EXPECT_EQ(attention_pairs(rows, keys, {kAllKeys, window}), static_cast<double>(one_side))
            << rows << " rows, " << keys << " keys, " << window << " after";
      }
    }
  }
}

TEST(Attention, ReferenceBackwardIsTheDerivativeByTheBias) {
  for (const float p : {0.0f, 0.25f}) {
    Case<float> c({{6, 4}, 1, 2, 5}, p, Bias::kByDistance);
    Runtime runtime("reference");
    const Results<float> r = run(runtime.context(), c);
    const auto loss = [&] { return weighted_sum(run(runtime.context(), c).out, c.grad_out); };
    expect_gradient(c.qkv, r.grad_qkv, loss, fmt::format("qkv, p = {}", p));
    expect_gradient(c.band, r.grad_bias, loss, fmt::format("bias, p = {}", p));
  }
}

// The gradient of the bias is a sum over sequences in their order: that of a batch is that of its
// sequences, one after the other.
TEST(Attention, TheGradientOfABiasIsAddedTo) {
  for (const std::string& name : fast_implementations("attention")) {
    Runtime runtime("attention=" + name);
    const Case<float> c({{9, 33, 5}, 2, 2, 20}, 0.1f, Bias::kByDistance);
    const Results<float> all = run(runtime.context(), c);
    const Sequences sequences = c.batch.sequences();
    const PositionBias bias = c.bias();
    std::vector<float> sum(c.band.size());
    for (std::size_t i = 0; i < sequences.count(); ++i) {
      const std::size_t begin = sequences.row_begin[i], rows = sequences.rows_of(i);
      const std::vector<std::uint32_t> row_begin = {0, static_cast<std::uint32_t>(rows)};
      std::vector<float> lse, grad_qkv(rows * 3 * c.hidden);
      for (std::size_t head = 0; head < c.shape.heads; ++head) {
        const auto* from = all.log_sum_exp.data() + head * c.batch.rows() + begin;
        lse.insert(lse.end(), from, from + rows);
      }
      attention_backward(
          runtime.context(),
          {row_begin, sequences.key_count.subspan(i, 1), sequences.sample.subspan(i, 1)},
          c.shape.attention(), c.dropout, c.qkv.data() + begin * 3 * c.hidden,
          all.out.data() + begin * c.hidden, lse.data(), c.grad_out.data() + begin * c.hidden,
          grad_qkv.data(), &bias, sum.data());
    }
    EXPECT_TRUE(same_bits(sum, all.grad_bias)) << name;
  }
}

TEST(Attention, ABiasOfZerosChangesNoBit) {
  for (const std::string& name : fast_implementations("attention")) {
    Runtime runtime("attention=" + name);
    const Case<bfloat16> plain({{40, 9}, 2, 3, 20}, 0.1f);
    Case<bfloat16> with_bias({{40, 9}, 2, 3, 20}, 0.1f, Bias::kByDistance);
    std::fill(with_bias.band.begin(), with_bias.band.end(), 0.0f);
    const Results<bfloat16> want = run(runtime.context(), plain);
    const Results<bfloat16> got = run(runtime.context(), with_bias);
    EXPECT_TRUE(same_bits(got.out, want.out)) << name;
    EXPECT_TRUE(same_bits(got.grad_qkv, want.grad_qkv)) << name;
  }
}

TEST(Attention, ABiasMustReachAllRows) {
  Runtime runtime;
  Case<float> c({{6, 4}, 0, 1, 8}, 0.0f, Bias::kByDistance);
  c.reach = 5;
  run(runtime.context(), c);
  c.reach = 4;
  EXPECT_THROW(run(runtime.context(), c), InvalidArgument);
}

// Reductions must be padded with zeros, whatever the scratch memory held before.
TEST(Attention, ScratchMayHoldAnything) {
  for (const std::string& name : fast_implementations("attention")) {
    for (const Case<bfloat16>& c :
         {Case<bfloat16>({{17, 3}, 1, 2, 20}, 0.1f, Bias::kByDistance),
          Case<bfloat16>({{150}, 3, 1, 64}, 0.1f, Bias::kByDistance),
          windowed<bfloat16>(Window::around(9), {{150}, 60, 1, 64}, 0.1f, Bias::kByDistance),
          windowed<bfloat16>(Window::causal(), {{150}, 3, 4, 20, 2}, 0.1f)}) {
      Runtime runtime("attention=" + name, 1);
      const Results<bfloat16> want = run(runtime.context(), c);
      for (float& x : runtime.context().scratch.of_thread<float>(0, Scratch::kThreadBytes / 4))
        x = std::nanf("");
      for (float& x : runtime.context().scratch.shared<float>(1 << 16)) x = std::nanf("");
      const Results<bfloat16> got = run(runtime.context(), c);
      EXPECT_TRUE(same_bits(got.out, want.out)) << name;
      EXPECT_TRUE(same_bits(got.grad_qkv, want.grad_qkv)) << name;
      EXPECT_TRUE(same_bits(got.grad_bias, want.grad_bias)) << name;
    }
  }
}

// A softmax written out by hand: two keys, one column.
TEST(Attention, ReferenceComputesASmallCaseByHand) {
  const std::vector<float> qkv = {/*row 0: q k v*/ 1, 0, 10, /*row 1*/ 2, 1, 20};
  const Batch batch({2});
  Runtime runtime("reference");
  std::vector<float> out(2);
  std::vector<float> lse(2);
  attention_forward(runtime.context(), batch.sequences(), {1, 1}, Dropout{}, qkv.data(), out.data(),
                    lse.data());
  for (std::size_t row = 0; row < 2; ++row) {
    const double q = static_cast<double>(qkv[3 * row]);
    const double sum = 1.0 + std::exp(q);  // scores 0 and q
    EXPECT_NEAR(out[row], (10.0 + 20.0 * std::exp(q)) / sum, 1e-5);
    EXPECT_NEAR(lse[row], std::log(sum), 1e-6);
  }
}

TEST(Attention, PadRowsAreNeverAttendedTo) {
  for (const std::string& name : fast_implementations("attention")) {
    Runtime runtime("attention=" + name);
    Case<float> c({{20}, 4, 1, 32}, 0.1f);
    const Results<float> before = run(runtime.context(), c);
    for (std::size_t row = 16; row < 20; ++row) {
      for (std::size_t column = c.hidden; column < 3 * c.hidden; ++column) {
        EXPECT_EQ(before.grad_qkv[row * 3 * c.hidden + column], 0.0f);  // those of keys and values
        c.qkv[row * 3 * c.hidden + column] = 1e9f;
      }
    }
    const Results<float> after = run(runtime.context(), c);
    EXPECT_TRUE(same_bits(before.out, after.out)) << name;
  }
}

// The rows of a sequence are the same bits alone, in a batch, and with pad rows after it.
TEST(Attention, SequencesDoNotDependOnPackingOrPadding) {
  for (const std::string& name : fast_implementations("attention")) {
    Runtime runtime("attention=" + name);
    const std::size_t H = 64;
    const auto qkv = random_values<bfloat16>(37 * 3 * H, 1);
    const Dropout dropout{.p = 0.1f, .seed = 1, .step = 1, .site = 16};
    const std::vector<std::uint64_t> sample = {9};
    const auto forward = [&](std::uint32_t rows) {
      const std::vector<std::uint32_t> row_begin = {0, rows};
      const std::vector<std::uint32_t> keys = {30};
      std::vector<bfloat16> out(rows * H);
      std::vector<float> lse(2 * rows);
      attention_forward(runtime.context(), {row_begin, keys, sample}, {2, 32}, dropout, qkv.data(),
                        out.data(), lse.data());
      out.resize(30 * H);
      return out;
    };
    EXPECT_TRUE(same_bits(forward(30), forward(37))) << name;
  }
}

TEST(Attention, SameBitsForAnyNumberOfThreads) {
  for (const auto& row : implementations("attention", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    for (const Case<bfloat16>& c :
         {windowed<bfloat16>(Window::around(40), {{50, 7, 33}, 2, 2, 32}, 0.1f, Bias::kByDistance),
          windowed<bfloat16>(Window::causal(), {{70, 7, 33}, 2, 4, 32, 2}, 0.1f)}) {
      Runtime one("attention=" + row.implementation, 1);
      const Results<bfloat16> want = run(one.context(), c);
      for (const int num_threads : {2, 3}) {
        Runtime many("attention=" + row.implementation, num_threads);
        const Results<bfloat16> got = run(many.context(), c);
        EXPECT_TRUE(same_bits(got.out, want.out)) << row.implementation;
        EXPECT_TRUE(same_bits(got.grad_qkv, want.grad_qkv)) << row.implementation;
        EXPECT_TRUE(same_bits(got.grad_bias, want.grad_bias)) << row.implementation;
      }
    }
  }
}

TEST(Attention, NanOfAKeyReachesItsSequenceOnly) {
  for (const auto& row : implementations("attention", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    Runtime runtime("attention=" + row.implementation);
    Case<float> c({{40, 40}, 0, 1, 32}, 0.0f);
    c.qkv[5 * 3 * c.hidden + c.hidden] = std::nanf("");
    const Results<float> r = run(runtime.context(), c);
    EXPECT_TRUE(std::isnan(r.out[0])) << row.implementation;
    EXPECT_FALSE(std::isnan(r.out[40 * c.hidden])) << row.implementation;
  }
}

}  // namespace
}  // namespace tandem::kernels::testing
