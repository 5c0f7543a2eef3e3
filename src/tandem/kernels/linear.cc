#include "tandem/kernels/linear.h"

#include <type_traits>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/reduce.h"

namespace tandem::kernels {
namespace {

void run(const Context& ctx, const Gemm<float, float>& gemm) { ctx.kernels.gemm->f32(ctx, gemm); }
void run(const Context& ctx, const Gemm<bfloat16, bfloat16>& gemm) {
  ctx.kernels.gemm->bf16(ctx, gemm);
}
void run(const Context& ctx, const Gemm<bfloat16, float>& gemm) {
  ctx.kernels.gemm->bf16_to_f32(ctx, gemm);
}

template <class T, class Out>
Gemm<T, Out> forward_product(std::size_t M, std::size_t N, std::size_t K, const T* x,
                             const T* weight, const float* bias, Out* y) {
  return {.m = M,
          .n = N,
          .k = K,
          .a = {.data = x, .ld = K, .reduction_is_row = true},
          .b = {.data = weight, .ld = K, .reduction_is_row = true},
          .bias = bias,
          .c = y,
          .accumulate = false};
}

template <class T, class Out>
Gemm<T, Out> forward_product(std::size_t M, const PackedWeight<T>& weight, const T* x,
                             const float* bias, Out* y) {
  Gemm<T, Out> product =
      forward_product(M, weight.out_features(), weight.in_features(), x, weight.weight(), bias, y);
  product.b_panels = weight.panels();
  return product;
}

}  // namespace

template <class T>
void linear_forward(const Context& ctx, std::size_t M, std::size_t N, std::size_t K, const T* x,
                    const T* weight, const float* bias, T* y) {
  run(ctx, forward_product(M, N, K, x, weight, bias, y));
}

template <class T>
void linear_forward_f32(const Context& ctx, std::size_t M, std::size_t N, std::size_t K, const T* x,
                        const T* weight, const float* bias, float* y) {
  run(ctx, forward_product(M, N, K, x, weight, bias, y));
}

template <class T>
void linear_forward(const Context& ctx, std::size_t M, const PackedWeight<T>& weight, const T* x,
                    const float* bias, T* y) {
  run(ctx, forward_product(M, weight, x, bias, y));
}

template <class T>
void linear_forward_f32(const Context& ctx, std::size_t M, const PackedWeight<T>& weight,
                        const T* x, const float* bias, float* y) {
  run(ctx, forward_product(M, weight, x, bias, y));
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
void transposed_linear_forward(const Context& ctx, std::size_t M, std::size_t N, std::size_t K,
                               const T* x, const T* weight, const float* bias, T* y) {
  Gemm<T, T> product = forward_product(M, N, K, x, weight, bias, y);
  product.b = {.data = weight, .ld = N, .reduction_is_row = false};
  run(ctx, product);
}

template <class T, class Out>
void transposed_linear_backward_input(const Context& ctx, std::size_t M, std::size_t N,
                                      std::size_t K, const T* grad_out, const T* weight,
                                      Out* grad_input, bool accumulate) {
  Gemm<T, Out> product = forward_product(M, K, N, grad_out, weight, nullptr, grad_input);
  product.accumulate = accumulate;
  run(ctx, product);
}

template <class T>
void linear_backward_weight(const Context& ctx, std::size_t M, std::size_t N, std::size_t K,
                            const T* grad_out, const T* x, float* grad_weight, float* grad_bias,
                            bool accumulate) {
  Gemm<T, float> gemm{.m = N,
                      .n = K,
                      .k = M,
                      .a = {.data = grad_out, .ld = N, .reduction_is_row = false},
                      .b = {.data = x, .ld = K, .reduction_is_row = false},
                      .bias = nullptr,
                      .c = grad_weight,
                      .accumulate = accumulate};
  const bool together = std::is_same_v<T, bfloat16> && ctx.kernels.gemm->sums_a && N > 0 && K > 0;
  if (together) gemm.a_sums = grad_bias;
  run(ctx, gemm);
  if (grad_bias != nullptr && !together) column_sums(ctx, M, N, grad_out, grad_bias, accumulate);
}

template void linear_forward(const Context&, std::size_t, std::size_t, std::size_t, const float*,
                             const float*, const float*, float*);
template void linear_forward(const Context&, std::size_t, std::size_t, std::size_t, const bfloat16*,
                             const bfloat16*, const float*, bfloat16*);
template void linear_forward_f32(const Context&, std::size_t, std::size_t, std::size_t,
                                 const float*, const float*, const float*, float*);
template void linear_forward_f32(const Context&, std::size_t, std::size_t, std::size_t,
                                 const bfloat16*, const bfloat16*, const float*, float*);
template void linear_forward(const Context&, std::size_t, const PackedWeight<float>&, const float*,
                             const float*, float*);
template void linear_forward(const Context&, std::size_t, const PackedWeight<bfloat16>&,
                             const bfloat16*, const float*, bfloat16*);
template void linear_forward_f32(const Context&, std::size_t, const PackedWeight<float>&,
                                 const float*, const float*, float*);
template void linear_forward_f32(const Context&, std::size_t, const PackedWeight<bfloat16>&,
                                 const bfloat16*, const float*, float*);
template void linear_backward_input(const Context&, std::size_t, std::size_t, std::size_t,
                                    const float*, const float*, float*, bool);
template void linear_backward_input(const Context&, std::size_t, std::size_t, std::size_t,
                                    const bfloat16*, const bfloat16*, bfloat16*, bool);
template void linear_backward_input(const Context&, std::size_t, std::size_t, std::size_t,
                                    const bfloat16*, const bfloat16*, float*, bool);
template void transposed_linear_forward(const Context&, std::size_t, std::size_t, std::size_t,
                                        const float*, const float*, const float*, float*);
template void transposed_linear_forward(const Context&, std::size_t, std::size_t, std::size_t,
                                        const bfloat16*, const bfloat16*, const float*, bfloat16*);
template void transposed_linear_backward_input(const Context&, std::size_t, std::size_t,
                                               std::size_t, const float*, const float*, float*,
                                               bool);
template void transposed_linear_backward_input(const Context&, std::size_t, std::size_t,
                                               std::size_t, const bfloat16*, const bfloat16*,
                                               bfloat16*, bool);
template void transposed_linear_backward_input(const Context&, std::size_t, std::size_t,
                                               std::size_t, const bfloat16*, const bfloat16*,
                                               float*, bool);
template void linear_backward_weight(const Context&, std::size_t, std::size_t, std::size_t,
                                     const float*, const float*, float*, float*, bool);
template void linear_backward_weight(const Context&, std::size_t, std::size_t, std::size_t,
                                     const bfloat16*, const bfloat16*, float*, float*, bool);

}  // namespace tandem::kernels
