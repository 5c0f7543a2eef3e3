// The positions of one layer (relative_embeddings.h), forward and backward: dropout, then the
// projection with the layer's own queries and keys, which attention reads.
//
//   r = dropout(R)      positions = r·Wqkvᵀ + bqkv
//
// The product with the values' part of the weights is not read. It is 1/3 of a product of P rows,
// and with it the rows of positions are further rows of the layer's product: adapters, int8 and
// packed weights need no code of their own.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/core/region.h"
#include "tandem/kernels/disentangled_attention.h"
#include "tandem/models/encoder/layer.h"
#include "tandem/models/layers/post_norm/relative_embeddings.h"

namespace tandem::models {

// P rows; empty in layers without positions.
template <class T>
struct PositionTensors {
  std::span<T> qkv;             // [P, 3H]; saved
  std::span<T> input;           // [P, H] r; scratch, as all that follow
  std::span<T> grad_qkv;        // [P, 3H]; from here on training only
  std::span<float> grad_input;  // [P, H]
  std::span<float> sums;        // of attention's backward

  static PositionTensors lay_out(Region& saved, Region& scratch, const RelativeEmbeddings& shared,
                                 const kernels::AttentionShape& shape, const LayerRows& rows,
                                 bool training);
};

// Keeps references to its arguments.
template <class T>
class PositionPass {
 public:
  PositionPass(const LayerPass<T>& pass, const RelativeEmbeddings& shared, const nn::Linear& qkv,
               const kernels::Dropout& dropout, const PositionTensors<T>& tensors);

  // Makes the positions of this layer.
  void project() const;
  // The positions as attention reads them, and their gradient, which it writes.
  kernels::RelativePositions<T> relative() const;
  std::span<T> grad_qkv() const { return tensors_.grad_qkv.first(positions_.rows * 3 * width()); }
  // Adds the gradients that grad_qkv() gives: of the layer's weights, behind those of the texts,
  // and of the shared rows. r is computed again.
  void backward(const nn::Gradients& grads) const;

 private:
  std::size_t width() const { return qkv_.in_features; }
  std::span<const T> input() const;

  const nn::Pass& texts_;
  const nn::Linear& qkv_;
  const kernels::Dropout& dropout_;
  const PositionTensors<T>& tensors_;
  const RelativeEmbeddings::Positions positions_;
  const nn::Pass pass_;
};

}  // namespace tandem::models
