#include "tandem/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {
namespace {

void check_shape(const AttentionShape& shape, const PositionBias* bias) {
  if (shape.head_dim < 1 || shape.head_dim > kMaxHeadDim) {
    raise<InvalidArgument>("attention heads of {} columns; supported are 1 to {}", shape.head_dim,
                           kMaxHeadDim);
  }
  if (shape.heads % shape.kv_heads() != 0) {
    raise<InvalidArgument>("{} heads of queries; expected a multiple of the {} heads of keys",
                           shape.heads, shape.key_heads);
  }
  if (bias != nullptr && shape.kv_heads() != shape.heads) {
    raise<InvalidArgument>("a bias by distance with {} heads of keys; expected {}", shape.key_heads,
                           shape.heads);
  }
}

// A call's sequences and how the pairs of a sequence and a head of keys, with its query heads, map
// to chunks: all heads of the longest sequence, then those of the next one.
class Heads {
 public:
  // kept: f32 values that the caller has room for until the next operation.
  Heads(const Context& ctx, const Sequences& sequences, const AttentionShape& shape,
        const Dropout& dropout, const PositionBias* bias, std::size_t kept = 0)
      : ctx_(ctx), sequences_(sequences), shape_(shape), dropout_(dropout), bias_(bias) {
    check_sequences(sequences);
    check_shape(shape, bias);
    for (std::size_t i = 0; i < sequences.count(); ++i)
      longest_ = std::max(longest_, sequences.rows_of(i));
    check_dropout(sequences, longest_, dropout);
    if (bias != nullptr && longest_ > bias->reach + 1) {
      raise<InvalidArgument>("a sequence of {} rows with a bias for distances up to {}", longest_,
                             bias->reach);
    }
    const std::span<std::uint32_t> memory =
        ctx.scratch.shared<std::uint32_t>(sequences.count() + kept);
    order_ = memory.first(sequences.count());
    kept_ = reinterpret_cast<float*>(memory.data() + sequences.count());
    order_longest_first(sequences, order_);
  }

  // Calls visit(first row, index of the first query head, AttentionHead without its pointers to T)
  // for every pair, in parallel.
  template <class T, class Visit>
  void for_each(Visit visit) const {
    const std::size_t masks_size = align_up(group() * kMaskFloats, kTensorAlignment);
    const std::size_t scratch_size =
        masks_size + of<T>(kernels())->scratch_size(longest_, shape_.head_dim, window_of(longest_));
    ctx_.threads.parallel_for(
        sequences_.count() * shape_.kv_heads(), [&](std::size_t chunk, int thread) {
          const std::size_t sequence = order_[chunk / shape_.kv_heads()];
          const std::size_t index = chunk % shape_.kv_heads() * group();
          float* const memory = ctx_.scratch.of_thread<float>(thread, scratch_size).data();
          AttentionHead<T> head;
          head.rows = sequences_.rows_of(sequence);
          head.keys = sequences_.key_count[sequence];
          head.head_dim = shape_.head_dim;
          head.group = group();
          head.ld_qkv = head.ld_q = shape_.qkv_width();
          head.ld_out = shape_.out_width();
          head.ld_log_sum_exp = rows();
          head.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
          head.window = window_of(head.rows);
          if (bias_ != nullptr)
            head.bias = bias_->values + index * (2 * bias_->reach + 1) + bias_->reach;
          head.masks = masks_of(sequence, index, memory);
          head.scratch = memory + masks_size;
          visit(sequences_.row_begin[sequence], index, head);
        });
  }

  const AttentionKernels& kernels() const { return *ctx_.kernels.attention; }
  const AttentionShape& shape() const { return shape_; }
  std::size_t group() const { return shape_.heads / shape_.kv_heads(); }  // query heads
  std::size_t rows() const { return sequences_.rows(); }
  const Sequences& sequences() const { return sequences_; }
  float* kept() const { return kept_; }

 private:
  static constexpr std::size_t kMaskFloats = sizeof(DropoutMask) / sizeof(float);

  // A side that holds all rows of a sequence counts as unlimited.
  Window window_of(std::size_t rows) const {
    const auto side = [&](std::size_t keys) { return keys < rows - 1 ? keys : kAllKeys; };
    return {side(shape_.window.before), side(shape_.window.after)};
  }

  // Those of the query heads from `index` on.
  const DropoutMask* masks_of(std::size_t sequence, std::size_t index, float* memory) const {
    auto* const masks = reinterpret_cast<DropoutMask*>(memory);
    for (std::size_t i = 0; i < group(); ++i) {
      Dropout dropout = dropout_;
      dropout.site += static_cast<std::uint32_t>(index + i);
      masks[i] = mask_of_sequence(sequences_, dropout, sequence);
    }
    return masks;
  }

  const Context& ctx_;
  const Sequences& sequences_;
  const AttentionShape& shape_;
  const Dropout& dropout_;
  const PositionBias* bias_;
  std::size_t longest_ = 0;
  std::span<std::uint32_t> order_;
  float* kept_ = nullptr;
};

// The columns of a row of qkv where the queries, keys and values of a group begin.
struct Columns {
  Columns(const Heads& all, std::size_t index)
      : query(index * all.shape().head_dim),
        key(all.shape().out_width() + index / all.group() * all.shape().head_dim),
        value(key + all.shape().kv_heads() * all.shape().head_dim) {}

  std::size_t query, key, value;
};

template <class T>
void point_to_qkv(AttentionHead<T>& head, const T* qkv, std::size_t row, const Columns& columns) {
  const T* const from = qkv + row * head.ld_qkv;
  head.q = from + columns.query;
  head.k = from + columns.key;
  head.v = from + columns.value;
}

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
  check_shape(shape, nullptr);
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
    const std::size_t scratch_size = kernel.scratch_size(head.rows, D, shape.window);
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
