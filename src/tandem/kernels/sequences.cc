#include "tandem/kernels/sequences.h"

#include <algorithm>
#include <numeric>

#include "tandem/core/error.h"

namespace tandem::kernels {

std::size_t sequence_of_row(const Sequences& sequences, std::size_t row) {
  const auto after = std::upper_bound(sequences.row_begin.begin(), sequences.row_begin.end(), row);
  return static_cast<std::size_t>(after - sequences.row_begin.begin()) - 1;
}

void order_longest_first(const Sequences& sequences, std::span<std::uint32_t> order) {
  std::iota(order.begin(), order.end(), 0u);
  const auto work = [&](std::uint32_t i) { return sequences.rows_of(i) * sequences.key_count[i]; };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return work(a) != work(b) ? work(a) > work(b) : a < b;
  });
}

void check_sequences(const Sequences& sequences) {
  const std::size_t count = sequences.count();
  if (sequences.row_begin.size() != count + 1 || sequences.row_begin[0] != 0) {
    raise<InvalidArgument>(
        "row_begin has {} entries for {} sequences; it needs one more than there are sequences, "
        "and starts with 0",
        sequences.row_begin.size(), count);
  }
  if (!sequences.sample.empty() && sequences.sample.size() != count) {
    raise<InvalidArgument>("{} sample numbers for {} sequences", sequences.sample.size(), count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (sequences.row_begin[i + 1] <= sequences.row_begin[i]) {
      raise<InvalidArgument>("sequence {} has no rows: row_begin {} is followed by {}", i,
                             sequences.row_begin[i], sequences.row_begin[i + 1]);
    }
    if (sequences.key_count[i] < 1 || sequences.key_count[i] > sequences.rows_of(i)) {
      raise<InvalidArgument>("sequence {} has {} keys in {} rows; expected 1 to {}", i,
                             sequences.key_count[i], sequences.rows_of(i), sequences.rows_of(i));
    }
  }
}

}  // namespace tandem::kernels
