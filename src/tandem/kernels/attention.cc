#include "tandem/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {
namespace {

// The shape of a call and how its (sequence, head) pairs map to chunks: all heads of the longest
// sequence, then those of the next one.
class Heads {
 public:
  Heads(const Context& ctx, const Sequences& sequences, std::size_t heads, std::size_t head_dim,
        const Dropout& dropout)
      : ctx_(ctx), sequences_(sequences), heads_(heads), head_dim_(head_dim), dropout_(dropout) {
    check_sequences(sequences);
    if (head_dim < 1 || head_dim > kMaxHeadDim) {
      raise<InvalidArgument>("attention heads of {} columns; supported are 1 to {}", head_dim,
                             kMaxHeadDim);
    }
    for (std::size_t i = 0; i < sequences.count(); ++i)
      longest_ = std::max(longest_, sequences.rows_of(i));
    check_dropout(sequences, longest_, dropout);
    order_ = ctx.scratch.shared<std::uint32_t>(sequences.count());
    order_longest_first(sequences, order_);
  }

  // Calls visit(first row, head, AttentionHead without its pointers to T) for every pair, in
  // parallel.
  template <class T, class Visit>
  void for_each(Visit visit) const {
    const std::size_t scratch_size =
        of<T>(*ctx_.kernels.attention)->scratch_size(longest_, head_dim_);
    ctx_.threads.parallel_for(sequences_.count() * heads_, [&](std::size_t chunk, int thread) {
      const std::size_t sequence = order_[chunk / heads_];
      const std::size_t index = chunk % heads_;
      Dropout dropout = dropout_;
      dropout.site += static_cast<std::uint32_t>(index);
      AttentionHead<T> head;
      head.rows = sequences_.rows_of(sequence);
      head.keys = sequences_.key_count[sequence];
      head.head_dim = head_dim_;
      head.ld_qkv = 3 * hidden();
      head.ld_out = hidden();
      head.scale = 1.0f / std::sqrt(static_cast<float>(head_dim_));
      head.mask = mask_of_sequence(sequences_, dropout, sequence);
      head.scratch = ctx_.scratch.of_thread<float>(thread, scratch_size).data();
      visit(sequences_.row_begin[sequence], index, head);
    });
  }

  std::size_t hidden() const { return heads_ * head_dim_; }
  std::size_t rows() const { return sequences_.rows(); }

 private:
  const Context& ctx_;
  const Sequences& sequences_;
  std::size_t heads_;
  std::size_t head_dim_;
  const Dropout& dropout_;
  std::size_t longest_ = 0;
  std::span<std::uint32_t> order_;
};

template <class T>
void point_to_qkv(AttentionHead<T>& head, const T* qkv, std::size_t row, std::size_t column) {
  head.q = qkv + row * head.ld_qkv + column;
  head.k = head.q + head.ld_out;
  head.v = head.k + head.ld_out;
}

// The first `queries` rows of each sequence, as far as it has them.
template <class T>
void forward(const Context& ctx, const Heads& all, std::size_t queries, const T* qkv, T* out,
             float* log_sum_exp) {
  all.for_each<T>([&](std::size_t row, std::size_t index, AttentionHead<T>& head) {
    const std::size_t column = index * head.head_dim;
    point_to_qkv(head, qkv, row, column);
    head.rows = std::min(head.rows, queries);
    head.out = out + row * all.hidden() + column;
    head.log_sum_exp = log_sum_exp + index * all.rows() + row;
    of<T>(*ctx.kernels.attention)->forward(head);
  });
}

}  // namespace

template <class T>
void attention_forward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                       std::size_t head_dim, const Dropout& dropout, const T* qkv, T* out,
                       float* log_sum_exp) {
  const Heads all(ctx, sequences, heads, head_dim, dropout);
  forward(ctx, all, all.rows(), qkv, out, log_sum_exp);
}

template <class T>
void attention_forward_first_rows(const Context& ctx, const Sequences& sequences, std::size_t heads,
                                  std::size_t head_dim, const Dropout& dropout, const T* qkv,
                                  T* out, float* log_sum_exp) {
  const Heads all(ctx, sequences, heads, head_dim, dropout);
  forward(ctx, all, 1, qkv, out, log_sum_exp);
}

template <class T>
void attention_backward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                        std::size_t head_dim, const Dropout& dropout, const T* qkv, const T* out,
                        const float* log_sum_exp, const T* grad_out, T* grad_qkv) {
  const Heads all(ctx, sequences, heads, head_dim, dropout);
  all.for_each<T>([&](std::size_t row, std::size_t index, AttentionHead<T>& head) {
    const std::size_t column = index * head_dim;
    point_to_qkv(head, qkv, row, column);
    // Backward only reads it.
    head.log_sum_exp = const_cast<float*>(log_sum_exp) + index * all.rows() + row;
    const std::size_t offset = row * all.hidden() + column;
    T* grad_q = grad_qkv + row * head.ld_qkv + column;
    of<T>(*ctx.kernels.attention)
        ->backward({.head = head,
                    .out = out + offset,
                    .grad_out = grad_out + offset,
                    .grad_q = grad_q,
                    .grad_k = grad_q + all.hidden(),
                    .grad_v = grad_q + 2 * all.hidden()});
  });
}

template void attention_forward(const Context&, const Sequences&, std::size_t, std::size_t,
                                const Dropout&, const float*, float*, float*);
template void attention_forward(const Context&, const Sequences&, std::size_t, std::size_t,
                                const Dropout&, const bfloat16*, bfloat16*, float*);
template void attention_forward_first_rows(const Context&, const Sequences&, std::size_t,
                                           std::size_t, const Dropout&, const float*, float*,
                                           float*);
template void attention_forward_first_rows(const Context&, const Sequences&, std::size_t,
                                           std::size_t, const Dropout&, const bfloat16*, bfloat16*,
                                           float*);
template void attention_backward(const Context&, const Sequences&, std::size_t, std::size_t,
                                 const Dropout&, const float*, const float*, const float*,
                                 const float*, float*);
template void attention_backward(const Context&, const Sequences&, std::size_t, std::size_t,
                                 const Dropout&, const bfloat16*, const bfloat16*, const float*,
                                 const bfloat16*, bfloat16*);

}  // namespace tandem::kernels
