#include "tandem/kernels/first_rows.h"

#include <vector>

#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

constexpr std::size_t kColumns = 37;
const Batch kBatch({5, 1, 9}, /*pads=*/2);

TEST(FirstRows, GatherTakesThemAndScatterIsItsTranspose) {
  Runtime runtime;
  const Sequences sequences = kBatch.sequences();
  const auto x = random_values(kBatch.rows() * kColumns, 1);
  const auto grad_y = random_values(sequences.count() * kColumns, 2);
  std::vector<float> y(grad_y.size()), grad_x(x.size(), 7.0f);
  gather_first_rows(runtime.context(), sequences, kColumns, x.data(), y.data());
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    EXPECT_EQ(y[i * kColumns + 3], x[sequences.row_begin[i] * kColumns + 3]);
  }
  scatter_first_rows(runtime.context(), sequences, kColumns, grad_y.data(), grad_x.data());
  // <gather x, grad_y> = <x, scatter grad_y>; the other rows are 0, so the sums have equal terms.
  EXPECT_EQ(weighted_sum(y, grad_y), weighted_sum(x, grad_x));
  EXPECT_EQ(grad_x[kColumns], 0.0f);
}

template <class T>
void keeps_what_gather_takes() {
  Runtime runtime;
  const Sequences sequences = kBatch.sequences();
  auto x = random_values<T>(kBatch.rows() * kColumns, 1);
  std::vector<float> all(x.size()), want(sequences.count() * kColumns);
  for (std::size_t i = 0; i < x.size(); ++i) all[i] = to_float(x[i]);
  gather_first_rows(runtime.context(), sequences, kColumns, all.data(), want.data());
  keep_first_rows(sequences, kColumns, x.data());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(to_float(x[i]), want[i]) << i;
}

TEST(FirstRows, KeepIsGatherInPlace) {
  keeps_what_gather_takes<float>();
  keeps_what_gather_takes<bfloat16>();
}

// The mask is that of the same rows in the whole batch.
TEST(FirstRows, DropoutIsThatOfRowZeroOfEachSequence) {
  Runtime runtime;
  const Sequences sequences = kBatch.sequences();
  const Dropout dropout{.p = 0.4f, .seed = 3, .step = 4, .site = 5};
  const auto x = random_values(kBatch.rows() * kColumns, 1);
  std::vector<float> all(x.size()), want(sequences.count() * kColumns), y(want.size());
  dropout_forward<float>(runtime.context(), sequences, kColumns, dropout, x.data(), all.data());
  gather_first_rows(runtime.context(), sequences, kColumns, all.data(), want.data());
  gather_first_rows(runtime.context(), sequences, kColumns, x.data(), y.data());
  const auto before = y;
  dropout_first_rows(runtime.context(), sequences, kColumns, dropout, y.data(), y.data());
  EXPECT_EQ(y, want);
  EXPECT_NE(y, before);
  dropout_first_rows(runtime.context(), sequences, kColumns, {}, before.data(), y.data());
  EXPECT_EQ(y, before);
}

}  // namespace
}  // namespace tandem::kernels::testing
