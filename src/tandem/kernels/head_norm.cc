#include "tandem/kernels/head_norm.h"

#include <algorithm>
#include <type_traits>

#include "tandem/core/error.h"
#include "tandem/kernels/column_partials.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {
namespace {

void check_shape(const Sequences& sequences, const HeadNormShape& shape) {
  check_sequences(sequences);
  const std::size_t columns = shape.heads * shape.head_dim;
  if (shape.head_dim == 0 || columns > shape.ld_x || columns > shape.ld_y) {
    raise<InvalidArgument>("{} heads of {} columns do not fit in rows of {} and {} elements",
                           shape.heads, shape.head_dim, shape.ld_x, shape.ld_y);
  }
}

template <class T>
void widen(const Context& ctx, std::size_t count, const T* from, float* to) {
  if constexpr (std::is_same_v<T, float>) {
    std::copy_n(from, count, to);
  } else {
    ctx.kernels.reduce->to_f32(count, from, to);
  }
}

}  // namespace

template <class T>
void head_norm_forward(const Context& ctx, const Sequences& sequences, const HeadNormShape& shape,
                       const float* gamma, float eps, const T* x, T* y, float* rstd) {
  check_shape(sequences, shape);
  const std::size_t D = shape.head_dim;
  for_each_row(ctx, sequences, D, Dropout{}, [&](const BatchRow& row, int thread) {
    float* const sum = ctx.scratch.of_thread<float>(thread, D).data();
    for (std::size_t head = 0; head < shape.heads; ++head) {
      of<T>(*ctx.kernels.layer_norm)
          .forward({.H = D,
                    .x = x + row.index * shape.ld_x + head * D,
                    .residual = nullptr,
                    .gamma = gamma,
                    .beta = nullptr,
                    .eps = eps,
                    .mask = {},
                    .row = 0,
                    .y = nullptr,
                    .y_copy = y + row.index * shape.ld_y + head * D,
                    .sum = sum,
                    .mean = nullptr,
                    .rstd = rstd + row.index * shape.heads + head});
    }
  });
}

template <class T>
void head_norm_backward(const Context& ctx, const Sequences& sequences, const HeadNormShape& shape,
                        const float* gamma, const T* x, const float* rstd, T* grad,
                        float* grad_gamma, bool accumulate) {
  check_shape(sequences, shape);
  const std::size_t D = shape.head_dim;
  ColumnPartials partials(ctx, num_chunks(sequences.rows(), kRowChunk), D);
  ctx.threads.parallel_for(partials.chunks(), [&](std::size_t chunk, int thread) {
    float* const sums = partials.zeroed(chunk);
    float* const grad_y = ctx.scratch.of_thread<float>(thread, 2 * D).data();
    float* const widened = grad_y + D;
    visit_chunk_rows(sequences, Dropout{}, chunk, [&](const BatchRow& row) {
      for (std::size_t head = 0; head < shape.heads; ++head) {
        T* const grad_of_head = grad + row.index * shape.ld_y + head * D;
        widen(ctx, D, grad_of_head, grad_y);
        widen(ctx, D, x + row.index * shape.ld_x + head * D, widened);
        of<T>(*ctx.kernels.layer_norm)
            .backward({.H = D,
                       .grad_y = grad_y,
                       .sum = widened,
                       .gamma = gamma,
                       .centered = false,
                       .mean = 0,
                       .rstd = rstd[row.index * shape.heads + head],
                       .mask = {},
                       .row = 0,
                       .grad_beside = nullptr,
                       .grad_sum = grad_y,
                       .grad_x = grad_of_head,
                       .grad_gamma = sums,
                       .grad_beta = nullptr});
      }
    });
  });
  if (grad_gamma != nullptr) partials.sum_columns(ctx, 0, D, grad_gamma, accumulate);
}

template void head_norm_forward(const Context&, const Sequences&, const HeadNormShape&,
                                const float*, float, const float*, float*, float*);
template void head_norm_forward(const Context&, const Sequences&, const HeadNormShape&,
                                const float*, float, const bfloat16*, bfloat16*, float*);
template void head_norm_backward(const Context&, const Sequences&, const HeadNormShape&,
                                 const float*, const float*, const float*, float*, float*, bool);
template void head_norm_backward(const Context&, const Sequences&, const HeadNormShape&,
                                 const float*, const bfloat16*, const float*, bfloat16*, float*,
                                 bool);

}  // namespace tandem::kernels
