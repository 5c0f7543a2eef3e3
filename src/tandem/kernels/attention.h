// Scaled dot-product self-attention over packed sequences, one (sequence, head) at a time;
// probabilities are never stored: backward recomputes them from the log-sum-exp of each row (Dao et
// al. 2022, "FlashAttention", with the blocking of a CPU).
//
//   scores = Q K^T / sqrt(D) + bias, over the sequence's key_count keys, or those of them that lie
//   within a window around the query;   P = softmax(scores);   out = dropout(P) V
//
// qkv: [rows, 3H] T, H = heads * head_dim: the queries of all heads, then the keys, then the
// values. Dropout draws element (query row, key column), both within the sequence, at site
// dropout.site + head: pass dropout_site(layer, kAttentionSite).
#pragma once

#include <cstddef>
#include <limits>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

inline constexpr std::size_t kMaxHeadDim = 256;

// The bias of the scores by head and by distance, key - query: a band, 2 reach + 1 values per head.
// T5 and MPNet have one; the rows of the band repeat the few values that the model has.
struct PositionBias {
  std::size_t reach = 0;          // distances -reach … reach
  const float* values = nullptr;  // [heads, 2 reach + 1]
};

// The window of attention to all keys of a sequence.
inline constexpr std::size_t kAllKeys = std::numeric_limits<std::size_t>::max();

// The number of pairs (query, key) whose scores attention computes for a sequence of `rows` rows
// and `keys` keys: what its operations are counted from.
double attention_pairs(std::size_t rows, std::size_t keys, std::size_t window = kAllKeys);

// window: row p attends to the keys p' with |p - p'| <= window, both counted within the sequence.
// Work is proportional to rows times min(keys, 2 window + 1). A row without any such key (a pad row
// far behind the keys) has zeros in out and no gradient; its log_sum_exp is -infinity. A window
// that reaches all keys of a sequence has the bits of kAllKeys.
//
// out: [rows, H] T, overwritten.   log_sum_exp: [heads, rows] f32, saved for backward.   T: float
// or bfloat16; all sums in f32. Throws InvalidArgument for bad sequences or dropout, or head_dim
// outside [1, kMaxHeadDim].   bias: null, or a band; InvalidArgument for a sequence of more than
// reach + 1 rows.
template <class T>
void attention_forward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                       std::size_t head_dim, const Dropout& dropout, const T* qkv, T* out,
                       float* log_sum_exp, const PositionBias* bias = nullptr,
                       std::size_t window = kAllKeys);

// The same bits for the first row of each sequence alone. The other rows of out and of log_sum_exp
// are not written.
template <class T>
void attention_forward_first_rows(const Context& ctx, const Sequences& sequences, std::size_t heads,
                                  std::size_t head_dim, const Dropout& dropout, const T* qkv,
                                  T* out, float* log_sum_exp, const PositionBias* bias = nullptr,
                                  std::size_t window = kAllKeys);

// grad_qkv: [rows, 3H] T, overwritten (zeros for the keys and values of pad rows).   grad_out:
// [rows, H] T. qkv, out, log_sum_exp, dropout, bias, window: as in forward.   grad_bias: with a
// bias only, the band's gradient, [heads, 2 reach + 1] f32, added to: for each distance first over
// the rows of a sequence, then over the sequences in their order.
template <class T>
void attention_backward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                        std::size_t head_dim, const Dropout& dropout, const T* qkv, const T* out,
                        const float* log_sum_exp, const T* grad_out, T* grad_qkv,
                        const PositionBias* bias = nullptr, float* grad_bias = nullptr,
                        std::size_t window = kAllKeys);

}  // namespace tandem::kernels
