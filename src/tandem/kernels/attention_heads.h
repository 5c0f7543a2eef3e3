// Internal: the pairs of a sequence and a head of keys that the attention of a call consists of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"
#include "tandem/kernels/attention.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {

inline void check_attention_shape(const AttentionShape& shape, const PositionBias* bias) {
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
    check_attention_shape(shape, bias);
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
  // for every pair, in parallel. positions: as AttentionOf::scratch_size.
  template <class T, class Visit>
  void for_each(Visit visit, std::size_t positions = 0) const {
    ctx_.threads.parallel_for(
        sequences_.count() * shape_.kv_heads(), [&](std::size_t chunk, int thread) {
          const std::size_t sequence = longest_first(chunk / shape_.kv_heads());
          const std::size_t index = chunk % shape_.kv_heads() * group();
          AttentionHead<T> head = head_of<T>(sequence, index, thread, positions);
          visit(sequences_.row_begin[sequence], index, head);
        });
  }

  // One of the pairs, in the memory of a thread.
  template <class T>
  AttentionHead<T> head_of(std::size_t sequence, std::size_t index, int thread,
                           std::size_t positions) const {
    const std::size_t masks_size = align_up(group() * kMaskFloats, kTensorAlignment);
    const std::size_t scratch_size =
        masks_size +
        of<T>(kernels())->scratch_size(longest_, shape_.head_dim, window_of(longest_), positions);
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
    if (bias_ != nullptr) head.bias = bias_->values + index * (2 * bias_->reach + 1) + bias_->reach;
    head.masks = masks_of(sequence, index, memory);
    head.scratch = memory + masks_size;
    return head;
  }

  // The sequence that is the n-th longest.
  std::size_t longest_first(std::size_t n) const { return order_[n]; }
  std::size_t longest() const { return longest_; }  // rows

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

}  // namespace tandem::kernels
