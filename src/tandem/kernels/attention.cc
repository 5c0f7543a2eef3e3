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
  // kept: f32 values that the caller has room for until the next operation.
  Heads(const Context& ctx, const Sequences& sequences, std::size_t heads, std::size_t head_dim,
        const Dropout& dropout, const PositionBias* bias, std::size_t window, std::size_t kept = 0)
      : ctx_(ctx),
        sequences_(sequences),
        heads_(heads),
        head_dim_(head_dim),
        dropout_(dropout),
        bias_(bias),
        window_(window) {
    check_sequences(sequences);
    if (head_dim < 1 || head_dim > kMaxHeadDim) {
      raise<InvalidArgument>("attention heads of {} columns; supported are 1 to {}", head_dim,
                             kMaxHeadDim);
    }
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

  // Calls visit(first row, head, AttentionHead without its pointers to T) for every pair, in
  // parallel.
  template <class T, class Visit>
  void for_each(Visit visit) const {
    const std::size_t scratch_size =
        of<T>(kernels())->scratch_size(longest_, head_dim_, window_of(longest_));
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
      head.window = window_of(head.rows);
      if (bias_ != nullptr)
        head.bias = bias_->values + index * (2 * bias_->reach + 1) + bias_->reach;
      head.mask = mask_of_sequence(sequences_, dropout, sequence);
      head.scratch = ctx_.scratch.of_thread<float>(thread, scratch_size).data();
      visit(sequences_.row_begin[sequence], index, head);
    });
  }

  const AttentionKernels& kernels() const { return *ctx_.kernels.attention; }
  std::size_t hidden() const { return heads_ * head_dim_; }
  std::size_t rows() const { return sequences_.rows(); }
  const Sequences& sequences() const { return sequences_; }
  float* kept() const { return kept_; }

 private:
  // A window that holds all rows of a sequence counts as no window.
  std::size_t window_of(std::size_t rows) const { return window_ < rows - 1 ? window_ : kAllKeys; }

  const Context& ctx_;
  const Sequences& sequences_;
  std::size_t heads_;
  std::size_t head_dim_;
  const Dropout& dropout_;
  const PositionBias* bias_;
  std::size_t window_;
  std::size_t longest_ = 0;
  std::span<std::uint32_t> order_;
  float* kept_ = nullptr;
};

template <class T>
void point_to_qkv(AttentionHead<T>& head, const T* qkv, std::size_t row, std::size_t column) {
  head.q = qkv + row * head.ld_qkv + column;
  head.k = head.q + head.ld_out;
  head.v = head.k + head.ld_out;
}

// The first `queries` rows of each sequence, as far as it has them.
template <class T>
void forward(const Heads& all, std::size_t queries, const T* qkv, T* out, float* log_sum_exp) {
  all.for_each<T>([&](std::size_t row, std::size_t index, AttentionHead<T>& head) {
    const std::size_t column = index * head.head_dim;
    point_to_qkv(head, qkv, row, column);
    head.rows = std::min(head.rows, queries);
    head.out = out + row * all.hidden() + column;
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

double attention_pairs(std::size_t rows, std::size_t keys, std::size_t window) {
  const auto pairs = [](std::size_t a, std::size_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  if (window >= std::max(rows, keys)) return pairs(rows, keys);
  // All pairs without the two triangles that the window cuts off.
  const std::size_t after = keys > window + 1 ? keys - window - 1 : 0;
  const std::size_t before = rows > window + 1 ? rows - window - 1 : 0;
  const auto triangle = [&](std::size_t side, std::size_t limit) {
    const std::size_t rest = side > limit ? side - limit : 0;
    return (pairs(side, side + 1) - pairs(rest, rest + 1)) / 2;
  };
  return pairs(rows, keys) - triangle(after, rows) - triangle(before, keys);
}

template <class T>
void attention_forward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                       std::size_t head_dim, const Dropout& dropout, const T* qkv, T* out,
                       float* log_sum_exp, const PositionBias* bias, std::size_t window) {
  const Heads all(ctx, sequences, heads, head_dim, dropout, bias, window);
  forward(all, all.rows(), qkv, out, log_sum_exp);
}

template <class T>
void attention_forward_first_rows(const Context& ctx, const Sequences& sequences, std::size_t heads,
                                  std::size_t head_dim, const Dropout& dropout, const T* qkv,
                                  T* out, float* log_sum_exp, const PositionBias* bias,
                                  std::size_t window) {
  const Heads all(ctx, sequences, heads, head_dim, dropout, bias, window);
  forward(all, 1, qkv, out, log_sum_exp);
}

template <class T>
void attention_backward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                        std::size_t head_dim, const Dropout& dropout, const T* qkv, const T* out,
                        const float* log_sum_exp, const T* grad_out, T* grad_qkv,
                        const PositionBias* bias, float* grad_bias, std::size_t window) {
  const Heads all(ctx, sequences, heads, head_dim, dropout, bias, window,
                  BiasGradients::size(bias, sequences, heads));
  const BiasGradients gradients(all, heads);
  all.for_each<T>([&](std::size_t row, std::size_t index, AttentionHead<T>& head) {
    const std::size_t column = index * head_dim;
    point_to_qkv(head, qkv, row, column);
    // Backward only reads it.
    head.log_sum_exp = const_cast<float*>(log_sum_exp) + index * all.rows() + row;
    const std::size_t offset = row * all.hidden() + column;
    T* grad_q = grad_qkv + row * head.ld_qkv + column;
    of<T>(all.kernels())
        ->backward({.head = head,
                    .out = out + offset,
                    .grad_out = grad_out + offset,
                    .grad_q = grad_q,
                    .grad_k = grad_q + all.hidden(),
                    .grad_v = grad_q + 2 * all.hidden(),
                    .grad_bias = bias == nullptr ? nullptr : gradients.of(row, index, head.rows)});
  });
  if (bias != nullptr) gradients.add_to(ctx, *bias, grad_bias);
}

template void attention_forward(const Context&, const Sequences&, std::size_t, std::size_t,
                                const Dropout&, const float*, float*, float*, const PositionBias*,
                                std::size_t);
template void attention_forward(const Context&, const Sequences&, std::size_t, std::size_t,
                                const Dropout&, const bfloat16*, bfloat16*, float*,
                                const PositionBias*, std::size_t);
template void attention_forward_first_rows(const Context&, const Sequences&, std::size_t,
                                           std::size_t, const Dropout&, const float*, float*,
                                           float*, const PositionBias*, std::size_t);
template void attention_forward_first_rows(const Context&, const Sequences&, std::size_t,
                                           std::size_t, const Dropout&, const bfloat16*, bfloat16*,
                                           float*, const PositionBias*, std::size_t);
template void attention_backward(const Context&, const Sequences&, std::size_t, std::size_t,
                                 const Dropout&, const float*, const float*, const float*,
                                 const float*, float*, const PositionBias*, float*, std::size_t);
template void attention_backward(const Context&, const Sequences&, std::size_t, std::size_t,
                                 const Dropout&, const bfloat16*, const bfloat16*, const float*,
                                 const bfloat16*, bfloat16*, const PositionBias*, float*,
                                 std::size_t);

}  // namespace tandem::kernels
