// Internal: the sums of some columns of a matrix whose rows arrive in pieces, in the order of
// column_sums() of reduce.h: rows in blocks, and the sums of the blocks in order, which rounds less
// than one long sum. No bit depends on the pieces.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {

template <class T>
class ColumnSums {
 public:
  // x: the first of the columns in row 0; rows are ld elements apart. memory: [2 columns].
  ColumnSums(const ReduceKernels& reduce, const T* x, std::size_t ld, std::size_t columns,
             float* memory)
      : reduce_(reduce), x_(x), ld_(ld), columns_(columns), block_(memory) {
    std::fill_n(memory, 2 * columns, 0.0f);
  }

  // The next `count` rows.
  void add(std::size_t count) {
    while (count > 0) {
      const std::size_t rows = std::min(count, kRows - row_ % kRows);
      of<T>(reduce_).add_column_sums(rows, columns_, x_ + row_ * ld_, ld_, block_);
      row_ += rows;
      count -= rows;
      if (row_ % kRows == 0) end_block();
    }
  }

  // sums[column] = or += the sums of all rows so far. Ends the series.
  void finish(float* sums, bool accumulate) {
    end_block();
    for (std::size_t c = 0; c < columns_; ++c)
      sums[c] = accumulate ? sums[c] + total()[c] : total()[c];
  }

 private:
  static constexpr std::size_t kRows = 256;

  void end_block() {
    for (std::size_t c = 0; c < columns_; ++c) total()[c] += block_[c];
    std::fill_n(block_, columns_, 0.0f);
  }
  float* total() { return block_ + columns_; }

  const ReduceKernels& reduce_;
  const T* x_;
  std::size_t ld_, columns_;
  std::size_t row_ = 0;
  float* block_;  // sums of the rows since the last block
};

}  // namespace tandem::kernels
