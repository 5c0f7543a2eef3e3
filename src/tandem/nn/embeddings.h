// BERT's input: y = dropout(LayerNorm(word[id] + position[p] + type[t])); with NEFTune noise is
// added to the sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/core/buffer.h"
#include "tandem/nn/hidden.h"
#include "tandem/nn/layer_norm.h"
#include "tandem/nn/packed_batch.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

struct EmbeddingsOptions {
  std::size_t hidden_size = 0;
  std::size_t vocab_size = 0;
  std::size_t max_position_embeddings = 0;
  std::size_t type_vocab_size = 0;  // 0: no token types
  std::int32_t padding_idx = -1;    // this word's row gets no gradient; -1: none
  bool positions_trainable = true;  // false: a fixed table, whose gradient stays 0
  double layer_norm_eps = 1e-12;
  double dropout = 0;
};

// Offsets in the parameter arena.
struct EmbeddingsParameters {
  std::size_t word = 0;      // [vocab_size, H]
  std::size_t position = 0;  // [max_position_embeddings, H]
  std::size_t type = 0;      // [type_vocab_size, H]; unused without token types
  LayerNormParameters norm;
};

// y: overwritten. An id outside its table is an InvalidArgument that names the row.
template <class T>
void embeddings_forward(const Pass& pass, const EmbeddingsOptions& options,
                        const EmbeddingsParameters& parameters, const PackedBatch& batch,
                        const LayerNormActivations& saved, const Hidden<T>& y);

// grad: [R, H] f32, the gradient of y; overwritten with the gradient of the sum of the three rows.
void embeddings_backward(const Pass& pass, const EmbeddingsOptions& options,
                         const EmbeddingsParameters& parameters, const PackedBatch& batch,
                         const LayerNormActivations& saved, std::span<float> grad,
                         const Gradients& grads);

}  // namespace tandem::nn
