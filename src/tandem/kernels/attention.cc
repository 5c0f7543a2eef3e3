#include "tandem/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/attention_heads.h"
#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

// The first `queries` rows of each sequence, as far as it has them.
template <class T>
void forward(const Heads& all, std::size_t queries, const T* qkv, T* out, float* log_sum_exp) {
  all.for_each<T>([&](std::size_t row, std::size_t index, AttentionHead<T>& head) {
    const Columns columns(all, index);
    point_to_qkv(head, qkv, row, columns);
    head.rows = std::min(head.rows, queries);
    head.out = out + row * head.ld_out + columns.query;
    head.log_sum_exp = log_sum_exp + index * all.rows() + row;
    of<T>(all.kernels())->forward(head);
  });
}

// The sums by distance of each (sequence, head), in the memory that Heads keeps: 2 rows values, of
// which the one of distance 0 is in the middle.
class BiasGradients {
 public:
  static std::size_t size(const PositionBias* bias, const Sequences& sequences, std::size_t heads) {
    return bias == nullptr ? 0 : 2 * sequences.rows() * heads;
  }

  BiasGradients(const Heads& all, std::size_t heads) : all_(all), heads_(heads) {}

  // The partial gradient of the sequence of `rows` rows that begins at `row`.
  float* of(std::size_t row, std::size_t index, std::size_t rows) const {
    return all_.kept() + 2 * row * heads_ + 2 * index * rows + rows;
  }

  // Added to the band's gradient, one head after the other in parallel.
  void add_to(const Context& ctx, const PositionBias& bias, float* gradient) const {
    const Sequences& sequences = all_.sequences();
    ctx.threads.parallel_for(heads_, [&](std::size_t index, int) {
      float* middle = gradient + index * (2 * bias.reach + 1) + bias.reach;
      for (std::size_t i = 0; i < sequences.count(); ++i) {
        const auto rows = static_cast<std::ptrdiff_t>(sequences.rows_of(i));
        const auto keys = static_cast<std::ptrdiff_t>(sequences.key_count[i]);
        const float* sums = of(sequences.row_begin[i], index, sequences.rows_of(i));
        for (std::ptrdiff_t at = 1 - rows; at < keys; ++at) middle[at] += sums[at];
      }
    });
  }

 private:
  const Heads& all_;
  std::size_t heads_;
};

}  // namespace

double attention_pairs(std::size_t rows, std::size_t keys, const Window& window) {
  const auto pairs = [](std::size_t a, std::size_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  // All pairs without the two triangles that the window cuts off.
  const auto outside = [](std::size_t count, std::size_t side) {
    return count > side && count - side > 1 ? count - side - 1 : 0;
  };
  const auto triangle = [&](std::size_t side, std::size_t limit) {
    const std::size_t rest = side > limit ? side - limit : 0;
    return (pairs(side, side + 1) - pairs(rest, rest + 1)) / 2;
  };
  return pairs(rows, keys) - triangle(outside(keys, window.after), rows) -
         triangle(outside(rows, window.before), keys);
}

template <class T>
void attention_forward(const Context& ctx, const Sequences& sequences, const AttentionShape& shape,
                       const Dropout& dropout, const T* qkv, T* out, float* log_sum_exp,
                       const PositionBias* bias) {
  const Heads all(ctx, sequences, shape, dropout, bias);
  forward(all, all.rows(), qkv, out, log_sum_exp);
}

template <class T>
void attention_forward_first_rows(const Context& ctx, const Sequences& sequences,
                                  const AttentionShape& shape, const Dropout& dropout, const T* qkv,
                                  T* out, float* log_sum_exp, const PositionBias* bias) {
  const Heads all(ctx, sequences, shape, dropout, bias);
  forward(all, 1, qkv, out, log_sum_exp);
}

template <class T>
void attention_forward_behind(const Context& ctx, const Sequences& sequences,
                              const AttentionShape& shape, std::span<const std::uint32_t> past,
                              const T* q, std::size_t ld_q, std::span<T* const> keys, T* out,
                              float* log_sum_exp) {
  check_attention_shape(shape, nullptr);
  check_sequences(sequences);
  if (shape.window.before != kAllKeys || shape.window.after != 0)
    raise<InvalidArgument>("attention to kept keys needs a causal window");
  if (past.size() != sequences.count() || keys.size() != sequences.count())
    raise<InvalidArgument>("{} sequences with {} pasts and {} kept keys; expected one of each",
                           sequences.count(), past.size(), keys.size());
  const AttentionOf<T>& kernel = *of<T>(*ctx.kernels.attention);
  const std::size_t group = shape.heads / shape.kv_heads(), D = shape.head_dim;
  const std::size_t all = sequences.rows();
  const DropoutMask none;
  const std::vector<DropoutMask> masks(group, none);
  ctx.threads.parallel_for(sequences.count() * shape.kv_heads(), [&](std::size_t unit, int thread) {
    const std::size_t i = unit / shape.kv_heads(), index = unit % shape.kv_heads();
    const std::size_t row = sequences.row_begin[i];
    AttentionHead<T> head;
    head.first_row = past[i];
    head.rows = head.keys = past[i] + sequences.rows_of(i);
    head.head_dim = D;
    head.group = group;
    head.ld_qkv = 2 * shape.kv_heads() * D;
    head.ld_q = ld_q;
    head.ld_out = shape.out_width();
    head.ld_log_sum_exp = all;
    head.q = q + row * ld_q + index * group * D;
    head.k = keys[i] + index * D;
    head.v = head.k + shape.kv_heads() * D;
    head.scale = 1.0f / std::sqrt(static_cast<float>(D));
    // A row that is the first of all has the window of a whole sequence.
    head.window = head.rows == 1 ? Window{} : shape.window;
    head.masks = masks.data();
    head.log_sum_exp = log_sum_exp + index * group * all + row;
    head.out = out + row * head.ld_out + index * group * D;
    const std::size_t scratch_size = kernel.scratch_size(head.rows, D, shape.window, 0);
    head.scratch = ctx.scratch.of_thread<float>(thread, scratch_size).data();
    kernel.forward(head);
  });
}

template <class T>
void attention_backward(const Context& ctx, const Sequences& sequences, const AttentionShape& shape,
                        const Dropout& dropout, const T* qkv, const T* out,
                        const float* log_sum_exp, const T* grad_out, T* grad_qkv,
                        const PositionBias* bias, float* grad_bias) {
  const Heads all(ctx, sequences, shape, dropout, bias,
                  BiasGradients::size(bias, sequences, shape.heads));
  const BiasGradients gradients(all, shape.heads);
  all.for_each<T>([&](std::size_t row, std::size_t index, AttentionHead<T>& head) {
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
                    .grad_bias = bias == nullptr ? nullptr : gradients.of(row, index, head.rows)});
  });
  if (bias != nullptr) gradients.add_to(ctx, *bias, grad_bias);
}

template void attention_forward(const Context&, const Sequences&, const AttentionShape&,
                                const Dropout&, const float*, float*, float*, const PositionBias*);
template void attention_forward(const Context&, const Sequences&, const AttentionShape&,
                                const Dropout&, const bfloat16*, bfloat16*, float*,
                                const PositionBias*);
template void attention_forward_first_rows(const Context&, const Sequences&, const AttentionShape&,
                                           const Dropout&, const float*, float*, float*,
                                           const PositionBias*);
template void attention_forward_first_rows(const Context&, const Sequences&, const AttentionShape&,
                                           const Dropout&, const bfloat16*, bfloat16*, float*,
                                           const PositionBias*);
template void attention_forward_behind(const Context&, const Sequences&, const AttentionShape&,
                                       std::span<const std::uint32_t>, const float*, std::size_t,
                                       std::span<float* const>, float*, float*);
template void attention_forward_behind(const Context&, const Sequences&, const AttentionShape&,
                                       std::span<const std::uint32_t>, const bfloat16*, std::size_t,
                                       std::span<bfloat16* const>, bfloat16*, float*);
template void attention_backward(const Context&, const Sequences&, const AttentionShape&,
                                 const Dropout&, const float*, const float*, const float*,
                                 const float*, float*, const PositionBias*, float*);
template void attention_backward(const Context&, const Sequences&, const AttentionShape&,
                                 const Dropout&, const bfloat16*, const bfloat16*, const float*,
                                 const bfloat16*, bfloat16*, const PositionBias*, float*);

}  // namespace tandem::kernels
