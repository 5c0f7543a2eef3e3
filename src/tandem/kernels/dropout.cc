#include "tandem/kernels/dropout.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/bfloat16.h"
#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {

DropoutMask dropout_mask(const Dropout& dropout, std::uint64_t sample) {
  if (!(dropout.p >= 0.0f && dropout.p < 1.0f)) {
    raise<InvalidArgument>("a dropout probability must be in [0, 1), got {}", dropout.p);
  }
  if (dropout.p == 0.0f) return {};
  std::uint64_t key = splitmix64(dropout.seed);
  key = splitmix64(key ^ dropout.step);
  key = splitmix64(key ^ dropout.site);
  key = splitmix64(key ^ sample);
  const long threshold = std::min(std::lround(static_cast<double>(dropout.p) * 65536.0), 65535L);
  return {.key0 = static_cast<std::uint32_t>(key),
          .key1 = static_cast<std::uint32_t>(key >> 32),
          .threshold = static_cast<std::uint32_t>(threshold),
          .scale = 1.0f / (1.0f - dropout.p)};
}

template <class T>
void dropout_forward(const Context& ctx, const Sequences& sequences, std::size_t columns,
                     const Dropout& dropout, const T* x, T* y) {
  for_each_row(ctx, sequences, columns, dropout, [&](const BatchRow& row, int) {
    const std::size_t offset = row.index * columns;
    of<T>(*ctx.kernels.dropout).forward(row.mask, row.in_sequence, columns, x + offset, y + offset);
  });
}

template <class T>
void dropout_add_forward(const Context& ctx, const Sequences& sequences, std::size_t columns,
                         const Dropout& dropout, const T* x, const float* residual, float* sum) {
  for_each_row(ctx, sequences, columns, dropout, [&](const BatchRow& row, int) {
    const std::size_t offset = row.index * columns;
    of<T>(*ctx.kernels.dropout)
        .add(row.mask, row.in_sequence, columns, x + offset, residual + offset, sum + offset);
  });
}

template <class T>
void dropout_add_backward(const Context& ctx, const Sequences& sequences, std::size_t columns,
                          const Dropout& dropout, const float* grad_sum, T* grad_x) {
  for_each_row(ctx, sequences, columns, dropout, [&](const BatchRow& row, int) {
    const std::size_t offset = row.index * columns;
    of<T>(*ctx.kernels.dropout)
        .add_backward(row.mask, row.in_sequence, columns, grad_sum + offset, grad_x + offset);
  });
}

template void dropout_forward(const Context&, const Sequences&, std::size_t, const Dropout&,
                              const float*, float*);
template void dropout_forward(const Context&, const Sequences&, std::size_t, const Dropout&,
                              const bfloat16*, bfloat16*);
template void dropout_add_forward(const Context&, const Sequences&, std::size_t, const Dropout&,
                                  const float*, const float*, float*);
template void dropout_add_forward(const Context&, const Sequences&, std::size_t, const Dropout&,
                                  const bfloat16*, const float*, float*);
template void dropout_add_backward(const Context&, const Sequences&, std::size_t, const Dropout&,
                                   const float*, float*);
template void dropout_add_backward(const Context&, const Sequences&, std::size_t, const Dropout&,
                                   const float*, bfloat16*);

}  // namespace tandem::kernels
