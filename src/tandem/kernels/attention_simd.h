// Internal: attention of one (sequence, head), written once over the vector type V of an ISA.
//
// Keys and values are brought into f32 once per head, K also transposed. Then blocks of kBlock
// queries pass: a block's scores against all keys (at most some 100 KB) stay in the L2 cache
// between the product that makes them and the one that consumes them. A row of scores is complete,
// so its softmax needs no rescaling. Backward makes the scores again and P from the saved
// log-sum-exp:
//   dV = (factor P)^T dO,   dS = P (factor dO V^T - delta),   dQ = scale dS K,   dK = scale dS^T Q,
//   delta = row sums of dO O.
// All five products run on the micro-kernel of the matrix product, with rows padded to kMr and
// columns to kNr; padding is zero or is never read as part of a reduction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/math.h"

namespace tandem::kernels::simd {

template <class V, int kMr, int kNv>
struct Attention {
  using Unit = FloatUnit<V, float>;
  static constexpr std::size_t kBlock = 64;  // queries
  static constexpr std::size_t kNr = kNv * V::kLanes;
  static_assert(kBlock % kMr == 0 && kNr % kMr == 0);

  static constexpr std::size_t padded(std::size_t n) { return (n + kNr - 1) / kNr * kNr; }

  // Matrices of one head in scratch memory, all f32. `keys` and `columns` (head_dim) are padded.
  struct Scratch {
    std::size_t keys, columns;
    float *k_transposed, *v;        // [head_dim, keys], [keys, columns]
    float *queries, *scores, *out;  // [kBlock, columns], [kBlock, keys], [kBlock, columns]
    float *k, *v_transposed;        // backward: [keys, columns], [head_dim, keys]
    float *grad_out, *grad_scores;  // backward: [kBlock, columns], [kBlock, keys]
    float *grad_k, *grad_v;         // backward: [keys, columns]

    Scratch(float* memory, std::size_t num_keys, std::size_t head_dim)
        : keys(padded(num_keys)), columns(padded(head_dim)) {
      const auto take = [&memory](std::size_t count) {
        float* piece = memory;
        memory += count;
        return piece;
      };
      k_transposed = take(columns * keys);
      v = take(keys * columns);
      queries = take(kBlock * columns);
      scores = take(kBlock * keys);
      out = take(kBlock * columns);
      k = take(keys * columns);
      v_transposed = take(columns * keys);
      grad_out = take(kBlock * columns);
      grad_scores = take(kBlock * keys);
      grad_k = take(keys * columns);
      grad_v = take(keys * columns);
    }
    static std::size_t size(std::size_t num_keys, std::size_t head_dim) {
      const std::size_t matrix = padded(num_keys) * padded(head_dim);
      return 6 * matrix + 3 * kBlock * padded(head_dim) + 2 * kBlock * padded(num_keys);
    }
  };

  // c[rows, columns] = or += a b over `units`; see micro_kernel for the strides.
  template <bool kPanels>
  static void product(std::size_t rows, std::size_t columns, std::size_t units, const float* a,
                      std::size_t a_stride, const float* b, std::size_t b_stride, float* c,
                      std::size_t ldc, bool accumulate) {
    const auto* a_units = reinterpret_cast<const GemmUnit*>(a);
    const auto* b_units = reinterpret_cast<const GemmUnit*>(b);
    for (std::size_t column = 0; column < columns; column += kNr) {
      for (std::size_t row = 0; row < rows; row += kMr) {
        micro_kernel<Unit, kMr, kNv, kPanels>(units, a_units + (kPanels ? row : row * a_stride),
                                              a_stride, b_units + column, b_stride,
                                              c + row * ldc + column, ldc, accumulate);
      }
    }
  }

  // to[rows, columns] = factor * from[rows, head_dim], zeros beyond head_dim.
  template <class T>
  static void copy_rows(std::size_t rows, std::size_t head_dim, std::size_t columns, const T* from,
                        std::size_t ld, float factor, float* to) {
    const V scale = V::set1(factor);
    for (std::size_t row = 0; row < rows; ++row) {
      const T* from_row = from + row * ld;
      float* to_row = to + row * columns;
      for_each_vector<V>(
          head_dim, [&](auto at) __attribute__((always_inline)) {
            at.store(at.load(from_row) * scale, to_row);
          });
      for (std::size_t c = head_dim; c < columns; ++c) to_row[c] = 0.0f;
    }
  }

  static void clear_rows(std::size_t first, std::size_t last, std::size_t columns, float* matrix) {
    for (std::size_t i = first * columns; i < last * columns; ++i) matrix[i] = 0.0f;
  }

  // to[head_dim, keys] = the transpose of from[num_keys, columns], zeros beyond num_keys.
  static void transpose(std::size_t num_keys, std::size_t head_dim, const float* from,
                        std::size_t columns, float* to, std::size_t keys) {
    std::size_t key = 0;
    for (; key + 8 <= num_keys; key += 8) {
      std::size_t d = 0;
      for (; d + 8 <= head_dim; d += 8) {
        Unit::transpose_8x8(from + key * columns + d, columns,
                            reinterpret_cast<GemmUnit*>(to + d * keys + key), keys);
      }
      for (; d < head_dim; ++d) {
        for (std::size_t i = 0; i < 8; ++i) to[d * keys + key + i] = from[(key + i) * columns + d];
      }
    }
    for (; key < keys; ++key) {
      for (std::size_t d = 0; d < head_dim; ++d)
        to[d * keys + key] = key < num_keys ? from[key * columns + d] : 0.0f;
    }
  }

  static constexpr std::size_t whole_groups(std::size_t rows) {
    return (rows + kMr - 1) / kMr * kMr;
  }

  // scores = scaled queries of a block against all keys.
  template <class T>
  static void block_scores(const AttentionHead<T>& h, const Scratch& s, std::size_t first,
                           std::size_t rows) {
    copy_rows(rows, h.head_dim, s.columns, h.q + first * h.ld_qkv, h.ld_qkv, h.scale, s.queries);
    clear_rows(rows, whole_groups(rows), s.columns, s.queries);
    product<false>(whole_groups(rows), s.keys, h.head_dim, s.queries, s.columns, s.k_transposed,
                   s.keys, s.scores, s.keys, false);
  }

  // Turns a row of scores into exp(score - largest), dropped; gives the sum before dropout, and the
  // log-sum-exp.
  struct RowSum {
    float sum, log_sum_exp;
  };
  static RowSum softmax_row(const DropoutMask& mask, std::uint32_t row, std::size_t num_keys,
                            float* scores) {
    V largest = V::set1(scores[0]);
    for_each_vector<V>(
        num_keys, [&](auto at) __attribute__((always_inline)) {
          largest = V::max(largest, at.keep_or(at.load(scores), largest));
        });
    const float most = V::largest(largest);
    const V shift = V::set1(most);
    V total = V::zero();
    for_each_masked_vector<V>(
        mask, row, num_keys, [&](auto at, V factor) __attribute__((always_inline)) {
          const V p = at.keep(exp(at.load(scores) - shift));
          total = total + p;
          at.store(p * factor, scores);
        });
    const float sum = V::sum(total);
    return {sum, most + __builtin_logf(sum)};
  }

  template <class T>
  static void forward(const AttentionHead<T>& h) {
    const Scratch s(h.scratch, h.keys, h.head_dim);
    copy_rows(h.keys, h.head_dim, s.columns, h.k, h.ld_qkv, 1.0f, s.v);
    transpose(h.keys, h.head_dim, s.v, s.columns, s.k_transposed, s.keys);
    copy_rows(h.keys, h.head_dim, s.columns, h.v, h.ld_qkv, 1.0f, s.v);
    for (std::size_t first = 0; first < h.rows; first += kBlock) {
      const std::size_t rows = h.rows - first < kBlock ? h.rows - first : kBlock;
      block_scores(h, s, first, rows);
      float inverse_sum[kBlock];
      for (std::size_t i = 0; i < rows; ++i) {
        const RowSum row = softmax_row(h.mask, static_cast<std::uint32_t>(first + i), h.keys,
                                       s.scores + i * s.keys);
        inverse_sum[i] = 1.0f / row.sum;
        h.log_sum_exp[first + i] = row.log_sum_exp;
      }
      product<false>(whole_groups(rows), s.columns, h.keys, s.scores, s.keys, s.v, s.columns, s.out,
                     s.columns, false);
      for (std::size_t i = 0; i < rows; ++i) {
        store_row(h.head_dim, s.out + i * s.columns, inverse_sum[i],
                  h.out + (first + i) * h.ld_out);
      }
    }
  }

  template <class T>
  static void store_row(std::size_t head_dim, const float* from, float factor, T* to) {
    const V scale = V::set1(factor);
    for_each_vector<V>(
        head_dim, [&](auto at)
                      __attribute__((always_inline)) { at.store(at.load(from) * scale, to); });
  }

  template <class T>
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
                           float log_sum_exp, float delta, float* scores, float* grad_scores) {
    const V shift = V::set1(log_sum_exp);
    const V offset = V::set1(delta);
    for_each_masked_vector<V>(
        mask, row, num_keys, [&](auto at, V factor) __attribute__((always_inline)) {
          const V p = exp(at.load(scores) - shift);
          at.store(p * factor, scores);
          at.store(p * V::fma(factor, at.load(grad_scores), V::zero() - offset), grad_scores);
        });
    for (std::size_t c = num_keys; c < padded(num_keys); ++c) scores[c] = grad_scores[c] = 0.0f;
  }

  template <class T>
  static void backward(const AttentionHeadBackward<T>& b) {
    const AttentionHead<T>& h = b.head;
    const Scratch s(h.scratch, h.keys, h.head_dim);
    copy_rows(h.keys, h.head_dim, s.columns, h.v, h.ld_qkv, 1.0f, s.k);
    transpose(h.keys, h.head_dim, s.k, s.columns, s.v_transposed, s.keys);
    copy_rows(h.keys, h.head_dim, s.columns, h.k, h.ld_qkv, 1.0f, s.k);
    transpose(h.keys, h.head_dim, s.k, s.columns, s.k_transposed, s.keys);
    for (std::size_t first = 0; first < h.rows; first += kBlock) {
      backward_block(b, s, first, h.rows - first < kBlock ? h.rows - first : kBlock);
    }
    for (std::size_t key = 0; key < h.rows; ++key) {
      const bool real = key < h.keys;
      store_key_row(h.head_dim, real ? s.grad_k + key * s.columns : nullptr,
                    b.grad_k + key * h.ld_qkv);
      store_key_row(h.head_dim, real ? s.grad_v + key * s.columns : nullptr,
                    b.grad_v + key * h.ld_qkv);
    }
  }

  template <class T>
  static void backward_block(const AttentionHeadBackward<T>& b, const Scratch& s, std::size_t first,
                             std::size_t rows) {
    const AttentionHead<T>& h = b.head;
    const std::size_t groups = whole_groups(rows);
    const T* grad_out = b.grad_out + first * h.ld_out;
    block_scores(h, s, first, rows);
    copy_rows(rows, h.head_dim, s.columns, grad_out, h.ld_out, 1.0f, s.grad_out);
    clear_rows(rows, groups, s.columns, s.grad_out);
    product<false>(groups, s.keys, h.head_dim, s.grad_out, s.columns, s.v_transposed, s.keys,
                   s.grad_scores, s.keys, false);
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t row = first + i;
      const float delta = dot_row(h.head_dim, grad_out + i * h.ld_out, b.out + row * h.ld_out);
      backward_row(h.mask, static_cast<std::uint32_t>(row), h.keys, h.log_sum_exp[row], delta,
                   s.scores + i * s.keys, s.grad_scores + i * s.keys);
    }
    const bool later = first > 0;
    product<true>(s.keys, s.columns, rows, s.scores, s.keys, s.grad_out, s.columns, s.grad_v,
                  s.columns, later);
    product<true>(s.keys, s.columns, rows, s.grad_scores, s.keys, s.queries, s.columns, s.grad_k,
                  s.columns, later);
    product<false>(groups, s.columns, h.keys, s.grad_scores, s.keys, s.k, s.columns, s.out,
                   s.columns, false);
    for (std::size_t i = 0; i < rows; ++i) {
      store_row(h.head_dim, s.out + i * s.columns, h.scale, b.grad_q + (first + i) * h.ld_qkv);
    }
  }

  // A row of the gradient of keys or values; null: the row of a pad token, zeros.
  template <class T>
  static void store_key_row(std::size_t head_dim, const float* from, T* to) {
    if (from != nullptr) return store_row(head_dim, from, 1.0f, to);
    for_each_vector<V>(
        head_dim, [&](auto at) __attribute__((always_inline)) { at.store(V::zero(), to); });
  }
};

template <class V, int kMr, int kNv>
constexpr AttentionKernels attention_kernels() {
  using A = Attention<V, kMr, kNv>;
  return {.f32 = {A::template forward<float>, A::template backward<float>},
          .bf16 = {A::template forward<bfloat16>, A::template backward<bfloat16>},
          .scratch_size = A::Scratch::size};
}

}  // namespace tandem::kernels::simd
