#include "tandem/kernels/linear.h"

#include <algorithm>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

void run(const Context& ctx, const Gemm<float, float>& gemm) { ctx.kernels.gemm->f32(ctx, gemm); }
void run(const Context& ctx, const Gemm<bfloat16, bfloat16>& gemm) {
  ctx.kernels.gemm->bf16(ctx, gemm);
}
void run(const Context& ctx, const Gemm<bfloat16, float>& gemm) {
  ctx.kernels.gemm->bf16_to_f32(ctx, gemm);
}

// A chunk owns some columns and walks down all rows, in blocks whose sums are added in order: less
// rounding than one long sum.
template <class T>
void bias_gradient(const Context& ctx, std::size_t rows, std::size_t columns, const T* x,
                   float* sums, bool accumulate) {
  constexpr std::size_t kColumns = 128;
  constexpr std::size_t kRows = 256;
  ctx.threads.parallel_for(num_chunks(columns, kColumns), [&](std::size_t chunk, int) {
    const std::size_t first = chunk * kColumns;
    const std::size_t width = std::min(kColumns, columns - first);
    float total[kColumns] = {};
    for (std::size_t row = 0; row < rows; row += kRows) {
      float block[kColumns] = {};
      of<T>(*ctx.kernels.reduce)
          .add_column_sums(std::min(kRows, rows - row), width, x + row * columns + first, columns,
                           block);
      for (std::size_t c = 0; c < width; ++c) total[c] += block[c];
    }
    for (std::size_t c = 0; c < width; ++c) {
      sums[first + c] = accumulate ? sums[first + c] + total[c] : total[c];
    }
  });
}

}  // namespace

template <class T>
void linear_forward(const Context& ctx, std::size_t M, std::size_t N, std::size_t K, const T* x,
                    const T* weight, const float* bias, T* y) {
  run(ctx, Gemm<T, T>{.m = M,
                      .n = N,
                      .k = K,
                      .a = {.data = x, .ld = K, .reduction_is_row = true},
                      .b = {.data = weight, .ld = K, .reduction_is_row = true},
                      .bias = bias,
                      .c = y,
                      .accumulate = false});
}

template <class T, class Out>
void linear_backward_input(const Context& ctx, std::size_t M, std::size_t N, std::size_t K,
                           const T* grad_out, const T* weight, Out* grad_input, bool accumulate) {
  run(ctx, Gemm<T, Out>{.m = M,
                        .n = K,
                        .k = N,
                        .a = {.data = grad_out, .ld = N, .reduction_is_row = true},
                        .b = {.data = weight, .ld = K, .reduction_is_row = false},
                        .bias = nullptr,
                        .c = grad_input,
                        .accumulate = accumulate});
}

template <class T>
void linear_backward_weight(const Context& ctx, std::size_t M, std::size_t N, std::size_t K,
                            const T* grad_out, const T* x, float* grad_weight, float* grad_bias,
                            bool accumulate) {
  run(ctx, Gemm<T, float>{.m = N,
                          .n = K,
                          .k = M,
                          .a = {.data = grad_out, .ld = N, .reduction_is_row = false},
                          .b = {.data = x, .ld = K, .reduction_is_row = false},
                          .bias = nullptr,
                          .c = grad_weight,
                          .accumulate = accumulate});
  if (grad_bias != nullptr) bias_gradient(ctx, M, N, grad_out, grad_bias, accumulate);
}

template void linear_forward(const Context&, std::size_t, std::size_t, std::size_t, const float*,
                             const float*, const float*, float*);
template void linear_forward(const Context&, std::size_t, std::size_t, std::size_t, const bfloat16*,
                             const bfloat16*, const float*, bfloat16*);
template void linear_backward_input(const Context&, std::size_t, std::size_t, std::size_t,
                                    const float*, const float*, float*, bool);
template void linear_backward_input(const Context&, std::size_t, std::size_t, std::size_t,
                                    const bfloat16*, const bfloat16*, bfloat16*, bool);
template void linear_backward_input(const Context&, std::size_t, std::size_t, std::size_t,
                                    const bfloat16*, const bfloat16*, float*, bool);
template void linear_backward_weight(const Context&, std::size_t, std::size_t, std::size_t,
                                     const float*, const float*, float*, float*, bool);
template void linear_backward_weight(const Context&, std::size_t, std::size_t, std::size_t,
                                     const bfloat16*, const bfloat16*, float*, float*, bool);

}  // namespace tandem::kernels
