#include "tandem/kernels/column_partials.h"

#include <algorithm>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {

float* ColumnPartials::zeroed(std::size_t chunk) {
  float* sums = sums_ + chunk * columns_;
  std::fill_n(sums, columns_, 0.0f);
  return sums;
}

void ColumnPartials::sum_columns(const Context& ctx, std::size_t first, std::size_t count,
                                 float* dst, bool accumulate) const {
  constexpr std::size_t kColumns = 128;
  ctx.threads.parallel_for(num_chunks(count, kColumns), [&](std::size_t chunk, int) {
    const std::size_t begin = chunk * kColumns;
    const std::size_t width = std::min(kColumns, count - begin);
    float total[kColumns] = {};
    ctx.kernels.reduce->f32.add_column_sums(chunks_, width, sums_ + first + begin, columns_, total);
    for (std::size_t c = 0; c < width; ++c)
      dst[begin + c] = accumulate ? dst[begin + c] + total[c] : total[c];
  });
}

}  // namespace tandem::kernels
