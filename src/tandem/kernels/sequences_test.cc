#include "tandem/kernels/sequences.h"

#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

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

TEST(Sequences, OrderOfWork) {
  const std::vector<std::uint32_t> row_begin = {0, 4, 14, 24, 28, 40};
  const std::vector<std::uint32_t> keys = {4, 9, 10, 4, 1};  // work 16, 90, 100, 16, 12
  std::vector<std::uint32_t> order(5);
  order_longest_first({row_begin, keys, {}}, order);
  EXPECT_EQ(order, (std::vector<std::uint32_t>{2, 1, 0, 3, 4}));
}

}  // namespace
}  // namespace tandem::kernels::testing
