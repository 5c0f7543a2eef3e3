// Attention of some rows of a text: behind kept keys and values, one row, first rows.
#include "tandem/kernels/attention_test_support.h"

namespace tandem::kernels::testing {
namespace {

// Rows of one text in several sequences, each behind its own number of rows: of sequence i
// counts[i] rows behind pasts[i].
template <class T>
void behind(const Context& context, const Case<T>& c, const std::vector<std::size_t>& pasts,
            const std::vector<std::size_t>& counts, std::vector<T>& keys, std::vector<T>& out,
            std::vector<float>& log_sum_exp) {
  std::vector<T> q;
  std::vector<std::uint32_t> past, row_begin{0}, key_count;
  for (std::size_t i = 0; i < pasts.size(); ++i) {
    const auto from = c.qkv.begin() + static_cast<std::ptrdiff_t>(pasts[i] * c.width);
    q.insert(q.end(), from, from + static_cast<std::ptrdiff_t>(counts[i] * c.width));
    past.push_back(static_cast<std::uint32_t>(pasts[i]));
    key_count.push_back(static_cast<std::uint32_t>(counts[i]));
    row_begin.push_back(row_begin.back() + key_count.back());
  }
  const std::vector<T*> kept(pasts.size(), keys.data());
  attention_forward_behind<T>(context, {row_begin, key_count, {}}, c.shape.attention(c.window),
                              past, q.data(), c.width, kept, out.data(), log_sum_exp.data());
}

// The keys and values of the only sequence of a case, as generation keeps them.
template <class T>
std::vector<T> kept_keys(const Case<T>& c) {
  std::vector<T> keys;
  for (std::size_t row = 0; row < c.batch.rows(); ++row) {
    const auto from = c.qkv.begin() + static_cast<std::ptrdiff_t>(row * c.width);
    keys.insert(keys.end(), from + static_cast<std::ptrdiff_t>(c.hidden),
                from + static_cast<std::ptrdiff_t>(c.width));
  }
  return keys;
}

// The last rows of a sequence from kept keys and values, some or one at a time.
template <class T>
void rows_behind_have_the_same_bits(const std::string& implementation) {
  Runtime runtime("attention=" + implementation, 2, kPrecisionOf<T>);
  const Case<T> c = windowed<T>(Window::causal(), {{150}, 0, 4, 20, 2}, 0.0f);
  const Results<T> all = run(runtime.context(), c);
  std::vector<T> keys = kept_keys(c);
  const std::pair<std::size_t, std::size_t> parts[] = {{0, 1},  {0, 150}, {1, 1},  {63, 2},
                                                       {64, 1}, {70, 80}, {149, 1}};
  for (const auto& [past, count] : parts) {
    std::vector<T> out(count * c.hidden);
    std::vector<float> log_sum_exp(4 * count);
    behind<T>(runtime.context(), c, {past}, {count}, keys, out, log_sum_exp);
    const auto want = all.out.begin() + static_cast<std::ptrdiff_t>(past * c.hidden);
    EXPECT_TRUE(
        same_bits(out, std::vector<T>(want, want + static_cast<std::ptrdiff_t>(count * c.hidden))))
        << implementation << ", " << count << " rows behind " << past;
    EXPECT_EQ(log_sum_exp[count], all.log_sum_exp[150 + past]) << implementation;
  }
  // Several sequences at once, the second with the first row of all.
  const std::vector<std::size_t> pasts = {64, 0, 149, 3}, counts = {1, 1, 1, 30};
  std::vector<T> out(33 * c.hidden), single(30 * c.hidden);
  std::vector<float> log_sum_exp(4 * 33), single_log(4 * 30);
  behind<T>(runtime.context(), c, pasts, counts, keys, out, log_sum_exp);
  auto found = out.begin();
  for (std::size_t i = 0; i < pasts.size(); ++i) {
    behind<T>(runtime.context(), c, {pasts[i]}, {counts[i]}, keys, single, single_log);
    const auto size = static_cast<std::ptrdiff_t>(counts[i] * c.hidden);
    EXPECT_TRUE(same_bits(std::vector<T>(found, found + size),
                          std::vector<T>(single.begin(), single.begin() + size)))
        << implementation << ", sequence " << i;
    found += size;
  }
}

// One row alone takes a path of its own: every number of keys, query heads with and without keys of
// their own, more of them than a product has rows, heads of whole vectors and others.
template <class T>
void single_rows_have_the_same_bits(const std::string& implementation) {
  struct Heads {
    std::size_t heads, key_heads, head_dim;
  };
  Runtime runtime("attention=" + implementation, 2, kPrecisionOf<T>);
  for (const Heads& one : {Heads{9, 3, 64}, Heads{2, 2, 64}, Heads{4, 2, 128}, Heads{11, 1, 40},
                           Heads{17, 1, 32}, Heads{6, 2, 7}}) {
    SCOPED_TRACE(fmt::format("{}: {} heads, {} of keys, {} columns", implementation, one.heads,
                             one.key_heads, one.head_dim));
    const Shape shape{{70}, 0, one.heads, one.head_dim, one.key_heads};
    const Case<T> c = windowed<T>(Window::causal(), shape, 0.0f);
    const Results<T> all = run(runtime.context(), c);
    std::vector<T> keys = kept_keys(c);
    for (std::size_t past = 0; past < 70; ++past) {
      std::vector<T> out(c.hidden);
      std::vector<float> log_sum_exp(one.heads);
      behind<T>(runtime.context(), c, {past}, {1}, keys, out, log_sum_exp);
      const auto want = all.out.begin() + static_cast<std::ptrdiff_t>(past * c.hidden);
      ASSERT_TRUE(
          same_bits(out, std::vector<T>(want, want + static_cast<std::ptrdiff_t>(c.hidden))))
          << past;
      for (std::size_t head = 0; head < one.heads; ++head)
        ASSERT_EQ(log_sum_exp[head], all.log_sum_exp[head * 70 + past]) << past;
    }
  }
}

TEST(Attention, ASingleRowBehindKeptKeysHasItsBits) {
  for (const std::string& name : running_implementations("attention"))
    single_rows_have_the_same_bits<bfloat16>(name);
  for (const std::string& name : running_implementations("attention", Precision::kFloat32))
    single_rows_have_the_same_bits<float>(name);
}

TEST(Attention, RowsBehindKeptKeysHaveTheirBits) {
  for (const std::string& name : running_implementations("attention"))
    rows_behind_have_the_same_bits<bfloat16>(name);
  for (const std::string& name : running_implementations("attention", Precision::kFloat32))
    rows_behind_have_the_same_bits<float>(name);
}

template <class T>
void first_rows_alone(const std::string& implementation) {
  Runtime runtime("attention=" + implementation, 2, kPrecisionOf<T>);
  for (const Shape& shape : kShapes) {
    const Case<T> c = windowed<T>(Window::around(11), shape, 0.1f, Bias::kByDistance);
    const PositionBias bias = c.bias();
    const Results<T> all = run(runtime.context(), c);
    const T untouched = to_storage<T>(7.0f);
    std::vector<T> want(all.out.size(), untouched), out = want;
    std::vector<float> log_sum_exp(all.log_sum_exp.size());
    attention_forward_first_rows(runtime.context(), c.batch.sequences(), shape.attention(c.window),
                                 c.dropout, c.qkv.data(), out.data(), log_sum_exp.data(), &bias);
    for (std::size_t i = 0; i < shape.lengths.size(); ++i) {
      const std::size_t begin = c.batch.sequences().row_begin[i] * c.hidden;
      std::copy_n(all.out.begin() + begin, c.hidden, want.begin() + begin);
    }
    EXPECT_TRUE(same_bits(out, want)) << implementation << " " << shape.head_dim;
  }
}

TEST(Attention, FirstRowsAloneHaveTheSameBits) {
  for (const std::string& name : fast_implementations("attention", Precision::kFloat32))
    first_rows_alone<float>(name);
  for (const std::string& name : fast_implementations("attention", Precision::kBfloat16))
    first_rows_alone<bfloat16>(name);
  first_rows_alone<float>("reference");
}

}  // namespace
}  // namespace tandem::kernels::testing
