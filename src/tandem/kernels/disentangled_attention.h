// Self-attention of attention.h with relative positions as vectors instead of numbers (He et al.
// 2021, "DeBERTa"): each distance has a query and a key, and three products make a score.
//
//   score(i, j) = (q_i k_j + q_i kp_r + k_j qp_r) / sqrt(3 D),   r = row_of[j - i]
//
// The products with positions are computed once for each query, key and row, not for each pair, and
// gathered: neighbouring distances may share a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/kernels/attention.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

// The positions of a call, for sequences of up to (row_of.size() + 1) / 2 rows.
template <class T>
struct RelativePositions {
  // The row of each distance, key - query, from the lowest to the highest; it never descends.
  std::span<const std::int32_t> row_of;
  std::size_t rows = 0;
  // [rows, qkv_width]: queries and keys of all heads in the columns that those of a text have. The
  // columns of values are not read.
  const T* qkv = nullptr;
};

// As attention_forward() and attention_forward_first_rows(). Throws InvalidArgument for what they
// refuse, for shared heads of keys, for a window, and for a longer sequence than row_of has
// distances for.
template <class T>
void disentangled_attention_forward(const Context& ctx, const Sequences& sequences,
                                    const AttentionShape& shape, const Dropout& dropout,
                                    const RelativePositions<T>& positions, const T* qkv, T* out,
                                    float* log_sum_exp);
template <class T>
void disentangled_attention_forward_first_rows(const Context& ctx, const Sequences& sequences,
                                               const AttentionShape& shape, const Dropout& dropout,
                                               const RelativePositions<T>& positions, const T* qkv,
                                               T* out, float* log_sum_exp);

// The memory in f32 elements that backward needs for `count` sequences and `rows` positions. It
// grows with both.
std::size_t disentangled_attention_memory(std::size_t count, std::size_t rows,
                                          const AttentionShape& shape);

// As attention_backward().   grad_positions: [positions.rows, qkv_width] T, overwritten; the
// columns of values are 0. The gradient of a position is a sum over the sequences of a group, from
// the longest to the shortest, and then over at most 16 groups, which depend on the sequences only.
template <class T>
void disentangled_attention_backward(const Context& ctx, const Sequences& sequences,
                                     const AttentionShape& shape, const Dropout& dropout,
                                     const RelativePositions<T>& positions, const T* qkv,
                                     const T* out, const float* log_sum_exp, const T* grad_out,
                                     T* grad_qkv, T* grad_positions, std::span<float> memory);

// Dropout of rows that belong to no sequence: row i draws as row first_row + i of sample
// kNoSample.   x, y: [rows, columns] T; y may be x.
inline constexpr std::uint64_t kNoSample = ~std::uint64_t{0};
template <class T>
void dropout_positions(const Context& ctx, const Dropout& dropout, std::size_t first_row,
                       std::size_t rows, std::size_t columns, const T* x, T* y);
// Its backward: sum += x * factor.
void dropout_positions_backward(const Context& ctx, const Dropout& dropout, std::size_t first_row,
                                std::size_t rows, std::size_t columns, const float* x, float* sum);

}  // namespace tandem::kernels
