#include "tandem/kernels/disentangled_attention.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/kernels/attention_heads.h"
#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

// Sequences whose gradients of positions are summed one after the other. More groups keep more
// threads busy, and each needs memory for all positions.
constexpr std::size_t kMostGroups = 16;

std::size_t groups_of(std::size_t sequences) { return std::min(sequences, kMostGroups); }

// The heads of a call, each with its positions.
template <class T>
class DisentangledHeads {
 public:
  DisentangledHeads(const Context& ctx, const Sequences& sequences, const AttentionShape& shape,
                    const Dropout& dropout, const RelativePositions<T>& positions)
      : all_(ctx, sequences, shape, dropout, /*bias=*/nullptr), positions_(positions) {
    if (shape.kv_heads() != shape.heads || shape.window.before != kAllKeys ||
        shape.window.after != kAllKeys) {
      raise<InvalidArgument>("relative positions need a head of keys for each head and no window");
    }
    if (positions.row_of.size() % 2 == 0 || all_.longest() > reach() + 1) {
      raise<InvalidArgument>("a sequence of {} rows with positions for {} distances",
                             all_.longest(), positions.row_of.size());
    }
  }

  // As Heads::for_each, with what the call and the head have in addition.
  template <class Visit>
  void for_each(Visit visit) const {
    all_.template for_each<T>(
        [&](std::size_t row, std::size_t index, AttentionHead<T>& head) {
          const HeadPositions<T> own = add_to(head, index);
          head.positions = &own;
          visit(row, index, head);
        },
        positions_.rows);
  }

  HeadPositions<T> add_to(AttentionHead<T>& head, std::size_t index) const {
    head.scale = 1.0f / std::sqrt(3.0f * static_cast<float>(head.head_dim));
    const Columns columns(all_, index);
    return {.rows = positions_.rows,
            .row_of = positions_.row_of.data() + reach(),
            .ld = head.ld_qkv,
            .queries = positions_.qkv + columns.query,
            .keys = positions_.qkv + columns.key};
  }

  const Heads& all() const { return all_; }
  std::size_t rows() const { return positions_.rows; }

 private:
  std::size_t reach() const { return positions_.row_of.size() / 2; }

  Heads all_;
  const RelativePositions<T>& positions_;
};

// The first `queries` rows of each sequence, as far as it has them.
template <class T>
void disentangled_forward(const DisentangledHeads<T>& heads, std::size_t queries, const T* qkv,
                          T* out, float* log_sum_exp) {
  const Heads& all = heads.all();
  heads.for_each([&](std::size_t row, std::size_t index, AttentionHead<T>& head) {
    const Columns columns(all, index);
    point_to_qkv(head, qkv, row, columns);
    head.rows = std::min(head.rows, queries);
    head.out = out + row * head.ld_out + columns.query;
    head.log_sum_exp = log_sum_exp + index * all.rows() + row;
    of<T>(all.kernels())->forward(head);
  });
}

// The gradients of positions of each (group, head): [rows, head_dim] of the queries, then of the
// keys.
class PositionSums {
 public:
  PositionSums(const Heads& all, std::size_t rows, std::span<float> memory)
      : all_(all),
        rows_(rows),
        groups_(groups_of(all.sequences().count())),
        half_(rows * all.shape().head_dim),
        memory_(memory) {
    const std::size_t needed =
        disentangled_attention_memory(all.sequences().count(), rows, all.shape());
    if (memory.size() < needed) {
      raise<InvalidArgument>("memory of {} values for the gradients of positions; needed are {}",
                             memory.size(), needed);
    }
  }

  std::size_t groups() const { return groups_; }
  std::span<float> clear(std::size_t group, std::size_t head) const {
    const std::span<float> sums =
        memory_.subspan((group * all_.shape().heads + head) * 2 * half_, 2 * half_);
    std::ranges::fill(sums, 0.0f);
    return sums;
  }

  // The sums over the groups, as rows of qkv.
  template <class T>
  void write(const Context& ctx, T* gradient) const {
    const AttentionShape& shape = all_.shape();
    ctx.threads.parallel_for(rows_, [&](std::size_t row, int) {
      T* const queries = gradient + row * shape.qkv_width();
      T* const keys = queries + shape.out_width();
      for (std::size_t head = 0; head < shape.heads; ++head) {
        const std::size_t column = head * shape.head_dim;
        write_row(of_row(head, row), queries + column);
        write_row(of_row(head, row) + half_, keys + column);
      }
      std::fill_n(keys + shape.out_width(), shape.out_width(), T{});
    });
  }

 private:
  // A row of the queries of the first group.
  const float* of_row(std::size_t head, std::size_t row) const {
    return memory_.data() + head * 2 * half_ + row * all_.shape().head_dim;
  }
  template <class T>
  void write_row(const float* from, T* to) const {
    const std::size_t D = all_.shape().head_dim, group_size = all_.shape().heads * 2 * half_;
    float sums[kMaxHeadDim] = {};
    for (std::size_t group = 0; group < groups_; ++group, from += group_size)
      for (std::size_t d = 0; d < D; ++d) sums[d] += from[d];
    for (std::size_t d = 0; d < D; ++d) to[d] = to_storage<T>(sums[d]);
  }

  const Heads& all_;
  std::size_t rows_, groups_, half_;
  std::span<float> memory_;
};

}  // namespace

template <class T>
void disentangled_attention_forward(const Context& ctx, const Sequences& sequences,
                                    const AttentionShape& shape, const Dropout& dropout,
                                    const RelativePositions<T>& positions, const T* qkv, T* out,
                                    float* log_sum_exp) {
  const DisentangledHeads<T> heads(ctx, sequences, shape, dropout, positions);
  disentangled_forward(heads, sequences.rows(), qkv, out, log_sum_exp);
}

template <class T>
void disentangled_attention_forward_first_rows(const Context& ctx, const Sequences& sequences,
                                               const AttentionShape& shape, const Dropout& dropout,
                                               const RelativePositions<T>& positions, const T* qkv,
                                               T* out, float* log_sum_exp) {
  const DisentangledHeads<T> heads(ctx, sequences, shape, dropout, positions);
  disentangled_forward(heads, 1, qkv, out, log_sum_exp);
}

std::size_t disentangled_attention_memory(std::size_t count, std::size_t rows,
                                          const AttentionShape& shape) {
  return groups_of(count) * 2 * rows * shape.out_width();
}

template <class T>
void disentangled_attention_backward(const Context& ctx, const Sequences& sequences,
                                     const AttentionShape& shape, const Dropout& dropout,
                                     const RelativePositions<T>& positions, const T* qkv,
                                     const T* out, const float* log_sum_exp, const T* grad_out,
                                     T* grad_qkv, T* grad_positions, std::span<float> memory) {
  const DisentangledHeads<T> heads(ctx, sequences, shape, dropout, positions);
  const Heads& all = heads.all();
  const PositionSums sums(all, positions.rows, memory);
  const auto backward_of = [&](std::size_t sequence, std::size_t index, int thread, float* grads) {
    AttentionHead<T> head = all.template head_of<T>(sequence, index, thread, positions.rows);
    const HeadPositions<T> own = heads.add_to(head, index);
    head.positions = &own;
    const std::size_t row = sequences.row_begin[sequence];
    const Columns columns(all, index);
    point_to_qkv(head, qkv, row, columns);
    // Backward only reads it.
    head.log_sum_exp = const_cast<float*>(log_sum_exp) + index * all.rows() + row;
    const std::size_t offset = row * head.ld_out + columns.query;
    T* const grad = grad_qkv + row * head.ld_qkv;
    of<T>(all.kernels())
        ->backward({.head = head,
                    .out = out + offset,
                    .grad_out = grad_out + offset,
                    .grad_q = grad + columns.query,
                    .grad_k = grad + columns.key,
                    .grad_v = grad + columns.value,
                    .grad_position_queries = grads,
                    .grad_position_keys = grads + positions.rows * shape.head_dim});
  };
  // A group has every groups()-th of the sequences, so that all have about the same work.
  ctx.threads.parallel_for(sums.groups() * shape.heads, [&](std::size_t unit, int thread) {
    const std::size_t group = unit / shape.heads, index = unit % shape.heads;
    const std::span<float> grads = sums.clear(group, index);
    for (std::size_t n = group; n < sequences.count(); n += sums.groups())
      backward_of(all.longest_first(n), index, thread, grads.data());
  });
  sums.write(ctx, grad_positions);
}

template <class T>
void dropout_positions(const Context& ctx, const Dropout& dropout, std::size_t first_row,
                       std::size_t rows, std::size_t columns, const T* x, T* y) {
  const DropoutMask mask = dropout.p == 0.0f ? DropoutMask{} : dropout_mask(dropout, kNoSample);
  ctx.threads.parallel_for(rows, [&](std::size_t row, int) {
    of<T>(*ctx.kernels.dropout)
        .forward(mask, static_cast<std::uint32_t>(first_row + row), columns, x + row * columns,
                 y + row * columns);
  });
}

void dropout_positions_backward(const Context& ctx, const Dropout& dropout, std::size_t first_row,
                                std::size_t rows, std::size_t columns, const float* x, float* sum) {
  const DropoutMask mask = dropout.p == 0.0f ? DropoutMask{} : dropout_mask(dropout, kNoSample);
  ctx.threads.parallel_for(rows, [&](std::size_t row, int) {
    float* const to = sum + row * columns;
    ctx.kernels.dropout->f32.add(mask, static_cast<std::uint32_t>(first_row + row), columns,
                                 x + row * columns, to, to);
  });
}

template void disentangled_attention_forward(const Context&, const Sequences&,
                                             const AttentionShape&, const Dropout&,
                                             const RelativePositions<float>&, const float*, float*,
                                             float*);
template void disentangled_attention_forward(const Context&, const Sequences&,
                                             const AttentionShape&, const Dropout&,
                                             const RelativePositions<bfloat16>&, const bfloat16*,
                                             bfloat16*, float*);
template void disentangled_attention_forward_first_rows(const Context&, const Sequences&,
                                                        const AttentionShape&, const Dropout&,
                                                        const RelativePositions<float>&,
                                                        const float*, float*, float*);
template void disentangled_attention_forward_first_rows(const Context&, const Sequences&,
                                                        const AttentionShape&, const Dropout&,
                                                        const RelativePositions<bfloat16>&,
                                                        const bfloat16*, bfloat16*, float*);
template void disentangled_attention_backward(const Context&, const Sequences&,
                                              const AttentionShape&, const Dropout&,
                                              const RelativePositions<float>&, const float*,
                                              const float*, const float*, const float*, float*,
                                              float*, std::span<float>);
template void disentangled_attention_backward(const Context&, const Sequences&,
                                              const AttentionShape&, const Dropout&,
                                              const RelativePositions<bfloat16>&, const bfloat16*,
                                              const bfloat16*, const float*, const bfloat16*,
                                              bfloat16*, bfloat16*, std::span<float>);
template void dropout_positions(const Context&, const Dropout&, std::size_t, std::size_t,
                                std::size_t, const float*, float*);
template void dropout_positions(const Context&, const Dropout&, std::size_t, std::size_t,
                                std::size_t, const bfloat16*, bfloat16*);

}  // namespace tandem::kernels
