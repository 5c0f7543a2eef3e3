// Internal: the products of attention (attention_simd.h) on the vector micro-kernel of the matrix
// product. `Input` reads the tensors, `Inner` is multiplied: f32, or pairs of bf16.
#pragma once

#include <cstddef>
#include <type_traits>

#include "tandem/kernels/attention_simd.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/row_groups.h"
#include "tandem/kernels/simd/unroll.h"

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

  // Rows a multiple of 512 bytes apart lie in few sets of the L1 cache, which have no room for one
  // column of a block of P or dS.
  static constexpr std::size_t row_width(std::size_t keys) {
    constexpr std::size_t kSameSets = 512 / sizeof(float);
    return keys % kSameSets == 0 ? keys + kNr : keys;
  }

  static void multiply(std::size_t rows, Extent columns, std::size_t depth, const GemmUnit* a,
                       std::size_t a_stride, const GemmUnit* b, std::size_t b_depth, float* c) {
    product<false>(rows, columns, depth, a, a_stride, b, b_depth, c, false);
  }

  static void multiply_panel(std::size_t rows, std::size_t depth, const GemmUnit* a,
                             std::size_t a_stride, const GemmUnit* panel, float* c,
                             std::size_t ldc) {
    for_row_groups<kRows>(
        rows, [&](std::size_t row, auto count) __attribute__((always_inline)) {
          micro_kernel<Unit, count, kVectors, false>(depth, a + row * a_stride, a_stride, panel,
                                                     kNr, c + row * ldc, ldc, false);
        });
  }

  static void multiply_values(std::size_t rows, const GemmUnit* p, std::size_t p_stride,
                              const GemmOperand<typename Input::T>& values, std::size_t keys,
                              std::size_t head_dim, GemmUnit* /*buffer*/, float* c,
                              std::size_t ldc) {
    for_row_groups<kRows>(
        rows, [&](std::size_t row, auto count) __attribute__((always_inline)) {
          add_values<count>(p + row * p_stride, p_stride, values, keys, head_dim, c + row * ldc,
                            ldc);
        });
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
  static void multiply_transposed(Extent keys, Extent columns, std::size_t depth,
                                  const GemmUnit* pairs, const GemmUnit* block, float* gradient,
                                  std::size_t /*all_keys*/, std::size_t first, bool accumulate) {
    const std::size_t rows = (keys.used + kMr - 1) / kMr * kMr;
    product<true>(rows, columns, depth, pairs, keys.padded, block, depth,
                  gradient + first * columns.padded, accumulate);
  }
  static const float* gradient_rows(std::size_t, std::size_t columns, std::size_t first,
                                    std::size_t, const float* gradient, float*) {
    return gradient + first * columns;
  }

 private:
  using V = typename Unit::V;

  // As multiply_values(), for a group of rows: as many columns at a time as leave registers.
  template <int kGroup>
  [[gnu::noinline]] static void add_values(const GemmUnit* p, std::size_t p_stride,
                                           const GemmOperand<typename Input::T>& values,
                                           std::size_t keys, std::size_t head_dim, float* c,
                                           std::size_t ldc) {
    constexpr int kWide = kGroup * 4 <= static_cast<int>(V::kLanes) ? 4 : 2;
    std::size_t column = 0;
    for (; column + kWide * V::kLanes <= head_dim; column += kWide * V::kLanes)
      add_columns<kGroup, kWide>(p, p_stride, values, column, 0, keys, c + column, ldc);
    for (; column < head_dim; column += V::kLanes) {
      const std::size_t rest = head_dim - column < V::kLanes ? head_dim - column : V::kLanes;
      add_columns<kGroup, 1>(p, p_stride, values, column, rest, keys, c + column, ldc);
    }
  }

  // c[kGroup, kWide lanes] = P V: one chain for each element over the units of the keys, in order.
  // One vector has `rest` columns, several are whole.
  template <int kGroup, int kWide>
  [[gnu::always_inline]] static inline void add_columns(
      const GemmUnit* p, std::size_t p_stride, const GemmOperand<typename Input::T>& values,
      std::size_t column, std::size_t rest, std::size_t keys, float* c, std::size_t ldc) {
    constexpr std::size_t kRowsAhead = 32;  // the hardware does not prefetch from row to row
    constexpr std::size_t kLine = 64 / sizeof(typename Input::T);
    V sum[kGroup][kWide];
    unroll<kGroup>([&](auto r) __attribute__((always_inline)) {
      unroll<kWide>([&](auto v) __attribute__((always_inline)) { sum[r][v] = V::zero(); });
    });
    for (std::size_t key = 0; key < keys; key += Unit::kReduced, ++p) {
      const auto* row = values.data + key * values.ld + column;
      const bool last = key + 1 == keys;  // with two elements per unit: the second one is padding
      typename V::Words units[kWide];
      if constexpr (kWide == 1) {
        units[0] = Input::across(row, values.ld, last, rest);
      } else {
        for (std::size_t i = 0; i < Unit::kReduced; ++i) {
          for (std::size_t line = 0; line < kWide * V::kLanes; line += kLine)
            __builtin_prefetch(row + (kRowsAhead + i) * values.ld + line);
        }
        unroll<kWide / 2>([&](auto v) __attribute__((always_inline)) {
          Input::across_two(row + 2 * v * V::kLanes, values.ld, last, units[2 * v],
                            units[2 * v + 1]);
        });
      }
      unroll<kGroup>([&](auto r) __attribute__((always_inline)) {
        const typename V::Words x = Unit::broadcast(p + r * p_stride);
        unroll<kWide>([&](auto v) __attribute__((always_inline)) {
          sum[r][v] = Unit::multiply_add(x, units[v], sum[r][v]);
        });
      });
    }
    unroll<kGroup>([&](auto r) __attribute__((always_inline)) {
      unroll<kWide>([&](auto v) __attribute__((always_inline)) {
        V::store(sum[r][v], c + r * ldc + v * V::kLanes);
      });
    });
  }

  // kTransposed: A is [depth][rows]. One copy for all callers: inlined into forward, the loop took
  // 11 % more time (gcc 12, AVX-512, perf).
  template <bool kTransposed>
  [[gnu::noinline]] static void product(std::size_t rows, Extent columns, std::size_t depth,
                                        const GemmUnit* a, std::size_t a_stride, const GemmUnit* b,
                                        std::size_t b_depth, float* c, bool accumulate) {
    const auto panel = [&](std::size_t column, auto vectors) __attribute__((always_inline)) {
      for (std::size_t row = 0; row < rows; row += kMr) {
        micro_kernel<Unit, kRows, vectors, kTransposed>(
            depth, a + (kTransposed ? row : row * a_stride), a_stride, b + column * b_depth, kNr,
            c + row * columns.padded + column, columns.padded, accumulate);
      }
    };
    std::size_t column = 0;
    for (; column + kNr / 2 < columns.used; column += kNr)
      panel(column, std::integral_constant<int, kVectors>{});
    if (column < columns.used) panel(column, std::integral_constant<int, kVectors / 2>{});
  }
};

template <class Input, class Inner, int kRows, int kVectors>
constexpr AttentionOf<typename Input::T> vector_attention_of() {
  return attention_of<VectorProducts<Input, Inner, kRows, kVectors>>();
}

}  // namespace tandem::kernels::simd
