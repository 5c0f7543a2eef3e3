// The reference product: one element of C after the other, summed in f64 in the order of the
// reduction.
#include <cstddef>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

template <class T>
double element(const GemmOperand<T>& operand, std::size_t outer, std::size_t reduced) {
  return to_float(operand.reduction_is_row ? operand.data[outer * operand.ld + reduced]
                                           : operand.data[reduced * operand.ld + outer]);
}

template <class T, class Out>
void gemm(const Context& ctx, const Gemm<T, Out>& g) {
  ctx.threads.parallel_for(g.m, [&](std::size_t i, int) {
    for (std::size_t j = 0; j < g.n; ++j) {
      double sum = 0;
      for (std::size_t p = 0; p < g.k; ++p) sum += element(g.a, i, p) * element(g.b, j, p);
      if (g.bias != nullptr) sum += g.bias[j];
      Out& c = g.c[i * g.n + j];
      c = to_storage<Out>(g.accumulate ? to_float(c) + static_cast<float>(sum)
                                       : static_cast<float>(sum));
    }
  });
}

// Eight independent chains of multiply and add; the compiler has no leave to do anything clever
// with them.
double peak(std::size_t iterations) {
  volatile float sink = 0;
  float chain[8] = {};
  for (std::size_t i = 0; i < iterations; ++i) {
    for (float& x : chain) x = x * 0.5f + 1.0f;
  }
  for (float x : chain) sink = sink + x;
  return 16.0 * static_cast<double>(iterations);
}

}  // namespace

const GemmKernels kGemmReference = {
    .f32 = gemm<float, float>,
    .bf16 = gemm<bfloat16, bfloat16>,
    .bf16_to_f32 = gemm<bfloat16, float>,
    .peak_f32 = peak,
    .peak_bf16 = peak,
};

}  // namespace tandem::kernels
