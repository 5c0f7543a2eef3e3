// The input of an encoder: y = dropout(LayerNorm(word[id] + position[p] + type[t])); with NEFTune
// noise is added to the sum. Decoders have no LayerNorm there. E is the width of the embeddings.
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

// How the rows of a sequence are numbered.
//   kRows:   0, 1, 2 … (BERT)
//   kTokens: with p the id of the padding, p + 1, p + 2 … for every row that is not the padding,
//            and p for those that are (RoBERTa). It looks at ids only: padding inside a text counts
//            as such.
//   kNone:   not numbered, and without a table of positions: the layers have their own
//            (ModernBERT).
enum class Positions { kRows, kTokens, kNone };

struct EmbeddingsOptions {
  std::size_t width = 0;  // E
  std::size_t vocab_size = 0;
  std::size_t max_position_embeddings = 0;
  std::size_t type_vocab_size = 0;  // 0: no token types
  // This word's row gets no gradient, and with kTokens that position's neither; -1: none.
  std::int32_t padding_idx = -1;
  Positions positions = Positions::kRows;
  bool reads_token_types = true;  // false: every row has the type 0
  bool normed = true;
  bool positions_trainable = true;  // false: a fixed table, whose gradient stays 0
  double layer_norm_eps = 1e-12;
  double dropout = 0;
};

// Offsets in the parameter arena.
struct EmbeddingsParameters {
  std::size_t word = 0;      // [vocab_size, E]
  std::size_t position = 0;  // [max_position_embeddings, E], or kNoParameter
  std::size_t type = 0;      // [type_vocab_size, E]; unused without token types
  LayerNormParameters norm;  // kNoParameter: no norm
};

// Values saved for backward.
struct EmbeddingsActivations {
  LayerNormActivations norm;          // empty without a norm
  std::span<std::int32_t> positions;  // [R], or empty with Positions::kNone
  std::span<std::int32_t> types;      // [R] zeros, where token types are not read; else empty

  static EmbeddingsActivations allocate(Arena& arena, const EmbeddingsOptions& options,
                                        std::size_t rows);
};

// y: [R, E], overwritten. An id outside its table is an InvalidArgument that names the row.
template <class T>
void embeddings_forward(const Pass& pass, const EmbeddingsOptions& options,
                        const EmbeddingsParameters& parameters, const PackedBatch& batch,
                        const EmbeddingsActivations& saved, const Hidden<T>& y);

// grad: [R, E] f32, the gradient of y; overwritten with the gradient of the sum of the three rows.
void embeddings_backward(const Pass& pass, const EmbeddingsOptions& options,
                         const EmbeddingsParameters& parameters, const PackedBatch& batch,
                         const EmbeddingsActivations& saved, std::span<float> grad,
                         const Gradients& grads);

}  // namespace tandem::nn
