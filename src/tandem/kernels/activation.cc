#include "tandem/kernels/activation.h"

#include <algorithm>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

constexpr std::size_t kChunk = 16384;

// visit(row) for every row of a gated activation, some kChunk elements at a time.
template <class Visit>
void for_each_gated_row(const Context& ctx, std::size_t rows, std::size_t columns, Visit visit) {
  const std::size_t together = std::max<std::size_t>(1, kChunk / std::max<std::size_t>(1, columns));
  ctx.threads.parallel_for(num_chunks(rows, together), [&](std::size_t chunk, int) {
    const std::size_t end = std::min(rows, (chunk + 1) * together);
    for (std::size_t row = chunk * together; row < end; ++row) visit(row);
  });
}

}  // namespace

template <class T>
void activation_forward(const Context& ctx, Activation activation, std::size_t count, const T* x,
                        T* y) {
  ctx.threads.parallel_for(num_chunks(count, kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = chunk * kChunk;
    of<T>(*ctx.kernels.activation)
        .forward(activation, std::min(kChunk, count - begin), x + begin, y + begin);
  });
}

template <class T>
void activation_backward(const Context& ctx, Activation activation, std::size_t count, const T* x,
                         const T* grad_y, T* grad_x, T* y) {
  ctx.threads.parallel_for(num_chunks(count, kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = chunk * kChunk;
    of<T>(*ctx.kernels.activation)
        .backward(activation, std::min(kChunk, count - begin), x + begin, grad_y + begin,
                  grad_x + begin, y == nullptr ? nullptr : y + begin);
  });
}

template <class T>
void gated_activation_forward(const Context& ctx, Activation activation, std::size_t rows,
                              std::size_t columns, const T* x, T* y) {
  for_each_gated_row(ctx, rows, columns, [&](std::size_t row) {
    const T* a = x + row * 2 * columns;
    of<T>(*ctx.kernels.activation)
        .gated_forward(activation, columns, a, a + columns, y + row * columns);
  });
}

template <class T>
void gated_activation_backward(const Context& ctx, Activation activation, std::size_t rows,
                               std::size_t columns, const T* x, const T* grad_y, T* grad_x, T* y) {
  for_each_gated_row(ctx, rows, columns, [&](std::size_t row) {
    const std::size_t at = row * 2 * columns;
    of<T>(*ctx.kernels.activation)
        .gated_backward(activation, {.count = columns,
                                     .x = x + at,
                                     .gate = x + at + columns,
                                     .grad_y = grad_y + row * columns,
                                     .grad_x = grad_x + at,
                                     .grad_gate = grad_x + at + columns,
                                     .y = y == nullptr ? nullptr : y + row * columns});
  });
}

template void activation_forward(const Context&, Activation, std::size_t, const float*, float*);
template void activation_forward(const Context&, Activation, std::size_t, const bfloat16*,
                                 bfloat16*);
template void activation_backward(const Context&, Activation, std::size_t, const float*,
                                  const float*, float*, float*);
template void activation_backward(const Context&, Activation, std::size_t, const bfloat16*,
                                  const bfloat16*, bfloat16*, bfloat16*);
template void gated_activation_forward(const Context&, Activation, std::size_t, std::size_t,
                                       const float*, float*);
template void gated_activation_forward(const Context&, Activation, std::size_t, std::size_t,
                                       const bfloat16*, bfloat16*);
template void gated_activation_backward(const Context&, Activation, std::size_t, std::size_t,
                                        const float*, const float*, float*, float*);
template void gated_activation_backward(const Context&, Activation, std::size_t, std::size_t,
                                        const bfloat16*, const bfloat16*, bfloat16*, bfloat16*);

}  // namespace tandem::kernels
