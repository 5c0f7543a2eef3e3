// Internal: sums over rows that several chunks make together, in an order that no number of threads
// changes.
#pragma once

#include <cstddef>

#include "tandem/kernels/context.h"

namespace tandem::kernels {

// One row of `columns` f32 sums per chunk, in the shared scratch of the context.
class ColumnPartials {
 public:
  ColumnPartials(const Context& ctx, std::size_t chunks, std::size_t columns)
      : chunks_(chunks),
        columns_(columns),
        sums_(ctx.scratch.shared<float>(chunks * columns).data()) {}

  std::size_t chunks() const { return chunks_; }
  // The sums of a chunk, set to zero.
  float* zeroed(std::size_t chunk);
  // dst[c] = (or +=) the sum over chunks, in index order, of columns [first, first + count).
  void sum_columns(const Context& ctx, std::size_t first, std::size_t count, float* dst,
                   bool accumulate) const;

 private:
  std::size_t chunks_;
  std::size_t columns_;
  float* sums_;
};

}  // namespace tandem::kernels
