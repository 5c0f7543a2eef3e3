#include "tandem/kernels/first_rows.h"

#include <algorithm>
#include <vector>

#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

constexpr std::size_t kColumns = 37;
const Batch kBatch({5, 1, 9}, /*pads=*/2);

template <class T>
void expect_gather_and_its_transpose() {
  Runtime runtime;
  const Sequences sequences = kBatch.sequences();
  const auto x = random_values<T>(kBatch.rows() * kColumns, 1);
  const auto grad_y = random_values<T>(sequences.count() * kColumns, 2);
  std::vector<T> y(grad_y.size()), grad_x(x.size(), to_storage<T>(7.0f));
  gather_first_rows<T>(runtime.context(), sequences, kColumns, x.data(), y.data());
  std::copy(grad_y.begin(), grad_y.end(), grad_x.begin());
  spread_first_rows<T>(sequences, kColumns, grad_x.data());
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    for (std::size_t row = sequences.row_begin[i]; row < sequences.row_begin[i + 1]; ++row) {
      for (std::size_t c = 0; c < kColumns; ++c) {
        const bool first = row == sequences.row_begin[i];
        const float grad = first ? to_float(grad_y[i * kColumns + c]) : 0.0f;
        ASSERT_EQ(to_float(grad_x[row * kColumns + c]), grad) << row;
        if (first) {
          ASSERT_EQ(to_float(y[i * kColumns + c]), to_float(x[row * kColumns + c]));
        }
      }
    }
  }
}

TEST(FirstRows, GatherTakesThemAndSpreadIsItsTranspose) {
  expect_gather_and_its_transpose<float>();
  expect_gather_and_its_transpose<bfloat16>();
}

// The mask is that of the same rows in the whole batch.
TEST(FirstRows, DropoutIsThatOfRowZeroOfEachSequence) {
  Runtime runtime;
  const Sequences sequences = kBatch.sequences();
  const Dropout dropout{.p = 0.4f, .seed = 3, .step = 4, .site = 5};
  const auto x = random_values(kBatch.rows() * kColumns, 1);
  std::vector<float> all(x.size()), want(sequences.count() * kColumns), y(want.size());
  dropout_forward<float>(runtime.context(), sequences, kColumns, dropout, x.data(), all.data());
  gather_first_rows<float>(runtime.context(), sequences, kColumns, all.data(), want.data());
  gather_first_rows<float>(runtime.context(), sequences, kColumns, x.data(), y.data());
  const auto before = y;
  dropout_first_rows(runtime.context(), sequences, kColumns, dropout, y.data(), y.data());
  EXPECT_EQ(y, want);
  EXPECT_NE(y, before);
  dropout_first_rows(runtime.context(), sequences, kColumns, {}, before.data(), y.data());
  EXPECT_EQ(y, before);
}

}  // namespace
}  // namespace tandem::kernels::testing
