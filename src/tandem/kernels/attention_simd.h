// Internal: attention of one (sequence, head), written once over the units of an instruction set.
//
// `Input` reads the tensors of type T, `Inner` is what the products multiply: f32, or pairs of bf16
// (kernels_avx512bf16.cc), in which case P and dS are rounded to bf16 as in PyTorch's autocast.
//
// K and V are packed once per head into panels. Then blocks of kBlock queries pass: a block's scores
// against all keys (at most some 100 KB) stay in the L2 cache between the product that makes them
// and the one that consumes them. A row of scores is complete, so its softmax needs no rescaling.
// Backward makes the scores again and P from the saved log-sum-exp:
//   dV = (factor P)^T dO,   dS = P (factor dO V^T - delta),   dQ = scale dS K,   dK = scale dS^T Q,
//   delta = row sums of dO O.
// All products run on the micro-kernel of the matrix product, with rows padded to kMr and columns to
// kNr; padding is zero or is never read as part of a reduction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/math.h"

namespace tandem::kernels::simd {

template <class Input, class Inner, int kMr, int kNv>
struct Attention {
  using V = typename Inner::V;
  using T = typename Input::T;
  using Element = typename Inner::T;  // of P and dS
  static constexpr std::size_t kReduced = Inner::kReduced;
  static_assert(Input::kReduced == kReduced);
  static constexpr std::size_t kBlock = 64;  // queries
  static constexpr std::size_t kNr = kNv * V::kLanes;
  static_assert(kBlock % kMr == 0 && kNr % kMr == 0 && kBlock % kReduced == 0);

  static constexpr std::size_t padded(std::size_t n) { return (n + kNr - 1) / kNr * kNr; }
  static constexpr std::size_t units(std::size_t reduced) {
    return (reduced + kReduced - 1) / kReduced;
  }
  static constexpr std::size_t whole_groups(std::size_t rows) {
    return (rows + kMr - 1) / kMr * kMr;
  }

  // Matrices of one head in scratch memory. Panels of B are [columns / kNr][units][kNr].
  struct Scratch {
    std::size_t keys, columns;                   // padded: of scores, of a head
    std::size_t head_units;                      // of a reduction over the columns of a head
    GemmUnit *k_along, *v_across;                // B: reduced over columns; over keys
    GemmUnit* queries;                           // A: rows [kBlock][head_units]
    float *scores, *out;                         // [kBlock, keys], [kBlock, columns]
    GemmUnit *v_along, *k_across;                // from here on for backward
    GemmUnit* grad_out;                          // A: rows [kBlock][head_units]
    GemmUnit *queries_across, *grad_out_across;  // B: reduced over the block's queries
    GemmUnit* transposed;                        // A: [kBlock / kReduced][keys]
    float* grad_scores;                          // [kBlock, keys]
    float *grad_k, *grad_v;                      // [keys, columns]

    Scratch(float* memory, std::size_t num_keys, std::size_t head_dim)
        : keys(padded(num_keys)), columns(padded(head_dim)), head_units(units(head_dim)) {
      const auto take = [&memory](std::size_t count) {
        float* piece = memory;
        memory += count;
        return piece;
      };
      const auto take_units = [&take](std::size_t count) {
        return reinterpret_cast<GemmUnit*>(take(count));
      };
      const std::size_t matrix = keys * columns;
      k_along = take_units(matrix);
      v_across = take_units(matrix);
      queries = take_units(kBlock * columns);
      scores = take(kBlock * keys);
      out = take(kBlock * columns);
      v_along = take_units(matrix);
      k_across = take_units(matrix);
      grad_out = take_units(kBlock * columns);
      queries_across = take_units(kBlock * columns);
      grad_out_across = take_units(kBlock * columns);
      transposed = take_units(kBlock * keys);
      grad_scores = take(kBlock * keys);
      grad_k = take(matrix);
      grad_v = take(matrix);
    }
    static std::size_t size(std::size_t num_keys, std::size_t head_dim) {
      return 6 * padded(num_keys) * padded(head_dim) + 5 * kBlock * padded(head_dim) +
             3 * kBlock * padded(num_keys);
    }
  };

  // c[rows, columns] = or += A B over `depth` units. kTransposed: A is [depth][rows].
  template <bool kTransposed>
  static void product(std::size_t rows, std::size_t columns, std::size_t depth, const GemmUnit* a,
                      std::size_t a_stride, const GemmUnit* b, float* c, bool accumulate) {
    for (std::size_t column = 0; column < columns; column += kNr) {
      for (std::size_t row = 0; row < rows; row += kMr) {
        micro_kernel<Inner, kMr, kNv, kTransposed>(depth, a + (kTransposed ? row : row * a_stride),
                                                   a_stride, b + column * depth, kNr,
                                                   c + row * columns + column, columns, accumulate);
      }
    }
  }

  static GemmOperand<T> operand(const T* data, std::size_t ld, bool reduction_is_row) {
    return {.data = data, .ld = ld, .reduction_is_row = reduction_is_row};
  }

  // B of a reduction over the columns of a head: the product with the transpose of `matrix`.
  static void pack_transpose(std::size_t rows, std::size_t head_dim, const T* matrix,
                             std::size_t ld, GemmUnit* to) {
    pack_along<Input, kNr>(operand(matrix, ld, true), 0, rows, 0, head_dim, units(head_dim) * kNr,
                           to);
  }
  // B of a reduction over the rows of `matrix`.
  static void pack_rows(std::size_t rows, std::size_t head_dim, const T* matrix, std::size_t ld,
                        GemmUnit* to) {
    pack_across<Input, kNr>(operand(matrix, ld, false), 0, head_dim, 0, rows, units(rows) * kNr,
                            to);
  }

  // scores = the queries of a block against all keys, not scaled.
  static void block_scores(const AttentionHead<T>& h, const Scratch& s, std::size_t first,
                           std::size_t rows) {
    stage_rows<Input, kMr>(operand(h.q, h.ld_qkv, true), first, rows, 0, h.head_dim, s.head_units,
                           s.queries);
    product<false>(whole_groups(rows), s.keys, s.head_units, s.queries, s.head_units, s.k_along,
                   s.scores, false);
  }

  // P and dS take the place of the scores: a row of them begins where the row of scores began.
  static Element* in_place(float* scores) { return reinterpret_cast<Element*>(scores); }

  static void clear(Element* row, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) row[i] = Element{};
  }

  // Turns a row of scores into exp(scale (score - largest)), dropped; gives the sum before dropout,
  // and the log-sum-exp.
  struct RowSum {
    float sum, log_sum_exp;
  };
  static RowSum softmax_row(const DropoutMask& mask, std::uint32_t row, std::size_t num_keys,
                            float scale, float* scores) {
    V largest = V::set1(scores[0]);
    for_each_vector<V>(
        num_keys, [&](auto at) __attribute__((always_inline)) {
          largest = V::max(largest, at.keep_or(at.load(scores), largest));
        });
    const float most = V::largest(largest) * scale;
    const V shift = V::set1(most);
    const V scales = V::set1(scale);
    V total = V::zero();
    for_each_masked_vector<V>(
        mask, row, num_keys, [&](auto at, V factor) __attribute__((always_inline)) {
          const V p = at.keep(exp(at.load(scores) * scales - shift));
          total = total + p;
          Inner::store_operand(at, p * factor, in_place(scores));
        });
    clear(in_place(scores), num_keys, padded(num_keys));
    const float sum = V::sum(total);
    return {sum, most + __builtin_logf(sum)};
  }

  static void forward(const AttentionHead<T>& h) {
    const Scratch s(h.scratch, h.keys, h.head_dim);
    pack_transpose(h.keys, h.head_dim, h.k, h.ld_qkv, s.k_along);
    pack_rows(h.keys, h.head_dim, h.v, h.ld_qkv, s.v_across);
    for (std::size_t first = 0; first < h.rows; first += kBlock) {
      const std::size_t rows = h.rows - first < kBlock ? h.rows - first : kBlock;
      block_scores(h, s, first, rows);
      float inverse_sum[kBlock];
      for (std::size_t i = 0; i < rows; ++i) {
        const RowSum row = softmax_row(h.mask, static_cast<std::uint32_t>(first + i), h.keys,
                                       h.scale, s.scores + i * s.keys);
        inverse_sum[i] = 1.0f / row.sum;
        h.log_sum_exp[first + i] = row.log_sum_exp;
      }
      product<false>(whole_groups(rows), s.columns, units(h.keys), as_units(s.scores), s.keys,
                     s.v_across, s.out, false);
      for (std::size_t i = 0; i < rows; ++i) {
        store_row(h.head_dim, s.out + i * s.columns, inverse_sum[i],
                  h.out + (first + i) * h.ld_out);
      }
    }
  }

  static const GemmUnit* as_units(const float* scores) {
    return reinterpret_cast<const GemmUnit*>(scores);
  }

  static void store_row(std::size_t head_dim, const float* from, float factor, T* to) {
    const V scale = V::set1(factor);
    for_each_vector<V>(
        head_dim, [&](auto at)
                      __attribute__((always_inline)) { at.store(at.load(from) * scale, to); });
  }

  static float dot_row(std::size_t head_dim, const T* a, const T* b) {
    V sum = V::zero();
    for_each_vector<V>(
        head_dim, [&](auto at) __attribute__((always_inline)) {
          sum = V::fma(at.load(a), at.load(b), sum);
        });
    return V::sum(sum);
  }

  // One row: scores become dropout(P), grad_scores (which hold dO V^T) become dS.
  static void backward_row(const DropoutMask& mask, std::uint32_t row, std::size_t num_keys,
                           float scale, float log_sum_exp, float delta, float* scores,
                           float* grad_scores) {
    const V shift = V::set1(log_sum_exp);
    const V scales = V::set1(scale);
    const V offset = V::set1(delta);
    for_each_masked_vector<V>(
        mask, row, num_keys, [&](auto at, V factor) __attribute__((always_inline)) {
          const V p = exp(at.load(scores) * scales - shift);
          const V grad_p = at.load(grad_scores);
          Inner::store_operand(at, p * factor, in_place(scores));
          Inner::store_operand(at, p * V::fma(factor, grad_p, V::zero() - offset),
                               in_place(grad_scores));
        });
    clear(in_place(scores), num_keys, padded(num_keys));
    clear(in_place(grad_scores), num_keys, padded(num_keys));
  }

  // The rows of P or dS as A of a reduction over them, [units][keys]: f32 rows are that already.
  static const GemmUnit* transpose_rows(const Scratch& s, std::size_t rows, const float* scores) {
    if constexpr (kReduced == 1) {
      return as_units(scores);
    } else {
      for (std::size_t row = 0; row < rows; row += kReduced) {
        const auto* even = reinterpret_cast<const Element*>(scores + row * s.keys);
        const auto* odd = row + 1 == rows
                              ? nullptr
                              : reinterpret_cast<const Element*>(scores + (row + 1) * s.keys);
        GemmUnit* to = s.transposed + row / kReduced * s.keys;
        for (std::size_t c = 0; c < s.keys; c += 2 * V::kLanes) {
          typename V::Words pairs[2];
          V::interleave_two(even + c, odd == nullptr ? nullptr : odd + c, pairs[0], pairs[1]);
          V::store_words(pairs[0], to + c);
          V::store_words(pairs[1], to + c + V::kLanes);
        }
      }
      return s.transposed;
    }
  }

  static void backward(const AttentionHeadBackward<T>& b) {
    const AttentionHead<T>& h = b.head;
    const Scratch s(h.scratch, h.keys, h.head_dim);
    pack_transpose(h.keys, h.head_dim, h.k, h.ld_qkv, s.k_along);
    pack_transpose(h.keys, h.head_dim, h.v, h.ld_qkv, s.v_along);
    pack_rows(h.keys, h.head_dim, h.k, h.ld_qkv, s.k_across);
    for (std::size_t first = 0; first < h.rows; first += kBlock) {
      backward_block(b, s, first, h.rows - first < kBlock ? h.rows - first : kBlock);
    }
    for (std::size_t key = 0; key < h.rows; ++key) {
      const bool real = key < h.keys;
      store_key_row(h.head_dim, real ? s.grad_k + key * s.columns : nullptr, h.scale,
                    b.grad_k + key * h.ld_qkv);
      store_key_row(h.head_dim, real ? s.grad_v + key * s.columns : nullptr, 1.0f,
                    b.grad_v + key * h.ld_qkv);
    }
  }

  static void backward_block(const AttentionHeadBackward<T>& b, const Scratch& s, std::size_t first,
                             std::size_t rows) {
    const AttentionHead<T>& h = b.head;
    const std::size_t groups = whole_groups(rows);
    const T* grad_out = b.grad_out + first * h.ld_out;
    block_scores(h, s, first, rows);
    stage_rows<Input, kMr>(operand(grad_out, h.ld_out, true), 0, rows, 0, h.head_dim, s.head_units,
                           s.grad_out);
    product<false>(groups, s.keys, s.head_units, s.grad_out, s.head_units, s.v_along, s.grad_scores,
                   false);
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t row = first + i;
      const float delta = dot_row(h.head_dim, grad_out + i * h.ld_out, b.out + row * h.ld_out);
      backward_row(h.mask, static_cast<std::uint32_t>(row), h.keys, h.scale, h.log_sum_exp[row],
                   delta, s.scores + i * s.keys, s.grad_scores + i * s.keys);
    }
    const bool later = first > 0;
    const std::size_t depth = units(rows);
    pack_rows(rows, h.head_dim, grad_out, h.ld_out, s.grad_out_across);
    product<true>(s.keys, s.columns, depth, transpose_rows(s, rows, s.scores), s.keys,
                  s.grad_out_across, s.grad_v, later);
    pack_rows(rows, h.head_dim, h.q + first * h.ld_qkv, h.ld_qkv, s.queries_across);
    product<true>(s.keys, s.columns, depth, transpose_rows(s, rows, s.grad_scores), s.keys,
                  s.queries_across, s.grad_k, later);
    product<false>(groups, s.columns, units(h.keys), as_units(s.grad_scores), s.keys, s.k_across,
                   s.out, false);
    for (std::size_t i = 0; i < rows; ++i) {
      store_row(h.head_dim, s.out + i * s.columns, h.scale, b.grad_q + (first + i) * h.ld_qkv);
    }
  }

  // A row of the gradient of keys or values; null: the row of a pad token, zeros.
  static void store_key_row(std::size_t head_dim, const float* from, float factor, T* to) {
    if (from != nullptr) return store_row(head_dim, from, factor, to);
    for_each_vector<V>(
        head_dim, [&](auto at) __attribute__((always_inline)) { at.store(V::zero(), to); });
  }
};

template <class Input, class Inner, int kMr, int kNv>
constexpr AttentionOf<typename Input::T> attention_of() {
  using A = Attention<Input, Inner, kMr, kNv>;
  return {.forward = A::forward, .backward = A::backward, .scratch_size = A::Scratch::size};
}

}  // namespace tandem::kernels::simd
