// Internal: the products of attention (attention_simd.h) on the vector micro-kernel of the matrix
// product. `Input` reads the tensors, `Inner` is multiplied: f32, or pairs of bf16.
#pragma once

#include <cstddef>

#include "tandem/kernels/attention_simd.h"
#include "tandem/kernels/gemm_simd.h"

namespace tandem::kernels::simd {

template <class InputUnit, class Inner, int kRows, int kVectors>
class VectorProducts {
 public:
  using Input = InputUnit;
  using Unit = Inner;
  static constexpr std::size_t kBlock = 64;
  static constexpr std::size_t kMr = kRows;
  static constexpr std::size_t kNr = kVectors * Unit::V::kLanes;
  static constexpr std::size_t kDepth = 1;
  static_assert(kNr % kMr == 0);

  static void multiply(std::size_t rows, std::size_t columns, std::size_t depth, const GemmUnit* a,
                       std::size_t a_stride, const GemmUnit* b, std::size_t b_depth, float* c) {
    product<false>(rows, columns, depth, a, a_stride, b, b_depth, c, false);
  }

  // The block is B. The pairs are A as they are, [depth][keys], and the gradient is [keys,
  // columns].
  static void pack_block(std::size_t rows, std::size_t head_dim,
                         const GemmOperand<typename Input::T>& block, GemmUnit* to) {
    const std::size_t units = (rows + Unit::kReduced - 1) / Unit::kReduced;
    pack_across<Input, kNr>(block, 0, head_dim, 0, rows, units * kNr, to);
  }
  static constexpr std::size_t pairs_at(std::size_t keys, std::size_t, std::size_t u,
                                        std::size_t key) {
    return u * keys + key;
  }
  static void multiply_transposed(std::size_t keys, std::size_t columns, std::size_t depth,
                                  const GemmUnit* pairs, const GemmUnit* block, float* gradient,
                                  std::size_t /*all_keys*/, std::size_t first, bool accumulate) {
    product<true>(keys, columns, depth, pairs, keys, block, depth, gradient + first * columns,
                  accumulate);
  }
  static const float* gradient_rows(std::size_t, std::size_t columns, std::size_t first,
                                    std::size_t, const float* gradient, float*) {
    return gradient + first * columns;
  }

 private:
  // kTransposed: A is [depth][rows]. One copy for all callers: inlined into forward, the loop took
  // 11 % more time (gcc 12, AVX-512, perf).
  template <bool kTransposed>
  [[gnu::noinline]] static void product(std::size_t rows, std::size_t columns, std::size_t depth,
                                        const GemmUnit* a, std::size_t a_stride, const GemmUnit* b,
                                        std::size_t b_depth, float* c, bool accumulate) {
    for (std::size_t column = 0; column < columns; column += kNr) {
      for (std::size_t row = 0; row < rows; row += kMr) {
        micro_kernel<Unit, kRows, kVectors, kTransposed>(
            depth, a + (kTransposed ? row : row * a_stride), a_stride, b + column * b_depth, kNr,
            c + row * columns + column, columns, accumulate);
      }
    }
  }
};

template <class Input, class Inner, int kRows, int kVectors>
constexpr AttentionOf<typename Input::T> vector_attention_of() {
  return attention_of<VectorProducts<Input, Inner, kRows, kVectors>>();
}

}  // namespace tandem::kernels::simd
