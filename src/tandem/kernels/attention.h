// Scaled dot-product self-attention over packed sequences, one (sequence, head) at a time;
// probabilities are never stored: backward recomputes them from the log-sum-exp of each row (Dao et
// al. 2022, "FlashAttention", with the blocking of a CPU).
//
//   scores = Q K^T / sqrt(D) + bias, over the sequence's key_count keys, or those of them that lie
//   in a window of the query;   P = softmax(scores);   out = dropout(P) V
//
// qkv: [rows, (heads + 2 key_heads) head_dim] T: the queries of all heads, then the keys, then the
// values. Query heads may share heads of keys and values (Ainslie et al. 2023, "GQA"). Dropout
// draws element (query row, key column), both within the sequence, at site dropout.site + query
// head: pass dropout_site(layer, kAttentionSite).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

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

// Row p attends to the keys p - before … p + after, both counted within the sequence. kAllKeys: to
// all on that side. A row without any such key (a pad row far behind the keys) has zeros in out and
// no gradient; its log_sum_exp is -infinity. A side that reaches all keys of a sequence has the
// bits of kAllKeys.
struct Window {
  std::size_t before = kAllKeys;
  std::size_t after = kAllKeys;

  static constexpr Window around(std::size_t keys) { return {keys, keys}; }
  static constexpr Window causal() { return {kAllKeys, 0}; }
};

// The number of pairs (query, key) whose scores attention computes for a sequence of `rows` rows
// and `keys` keys: what its operations are counted from.
double attention_pairs(std::size_t rows, std::size_t keys, const Window& window = {});

// The sizes of a row of qkv, and which keys its queries read. Work is proportional to
// attention_pairs(): blocks of keys outside all windows of a block of queries are skipped.
struct AttentionShape {
  std::size_t heads = 0;
  std::size_t head_dim = 0;
  // Heads of keys and values, each for heads / key_heads neighbouring query heads; 0: `heads`.
  std::size_t key_heads = 0;
  Window window = {};

  std::size_t kv_heads() const { return key_heads == 0 ? heads : key_heads; }
  std::size_t out_width() const { return heads * head_dim; }
  std::size_t qkv_width() const { return (heads + 2 * kv_heads()) * head_dim; }
};

// out: [rows, heads head_dim] T, overwritten.   log_sum_exp: [heads, rows] f32, saved for backward.
// T: float or bfloat16; all sums in f32. Throws InvalidArgument for bad sequences or dropout,
// head_dim outside [1, kMaxHeadDim], or key_heads that do not divide heads.   bias: null, or a
// band; InvalidArgument for a sequence of more than reach + 1 rows, or fewer key heads than heads.
template <class T>
void attention_forward(const Context& ctx, const Sequences& sequences, const AttentionShape& shape,
                       const Dropout& dropout, const T* qkv, T* out, float* log_sum_exp,
                       const PositionBias* bias = nullptr);

// The same bits for the first row of each sequence alone. The other rows of out and of log_sum_exp
// are not written.
template <class T>
void attention_forward_first_rows(const Context& ctx, const Sequences& sequences,
                                  const AttentionShape& shape, const Dropout& dropout, const T* qkv,
                                  T* out, float* log_sum_exp, const PositionBias* bias = nullptr);

// Rows behind others whose keys and values are kept, as a decoder generates them: sequence i has
// its rows from past[i] on, with the bits that they have among all its rows. Causal only.
//   q: [rows, heads head_dim] T, rows ld_q apart.   keys: of each sequence, [past + its rows,
//   2 key_heads head_dim] T: of each row its keys, then its values.   out: [rows, heads head_dim]
//   T, overwritten.   log_sum_exp: [heads, rows] f32.   Throws InvalidArgument for another window,
//   a bad shape, bad sequences, or another number of pasts or keys than sequences.
template <class T>
void attention_forward_behind(const Context& ctx, const Sequences& sequences,
                              const AttentionShape& shape, std::span<const std::uint32_t> past,
                              const T* q, std::size_t ld_q, std::span<T* const> keys, T* out,
                              float* log_sum_exp);

// grad_qkv: as qkv, overwritten (zeros for the keys and values of pad rows). The gradient of a
// shared key or value is the sum over its query heads in their order, in f32.   grad_out: as out.
// qkv, out, log_sum_exp, shape, dropout, bias: as in forward.   grad_bias: with a bias only, the
// band's gradient, [heads, 2 reach + 1] f32, added to: for each distance first over the rows of a
// sequence, then over the sequences in their order.
template <class T>
void attention_backward(const Context& ctx, const Sequences& sequences, const AttentionShape& shape,
                        const Dropout& dropout, const T* qkv, const T* out,
                        const float* log_sum_exp, const T* grad_out, T* grad_qkv,
                        const PositionBias* bias = nullptr, float* grad_bias = nullptr);

}  // namespace tandem::kernels
