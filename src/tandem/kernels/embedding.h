// BERT's embedding block: y = dropout(LayerNorm(word[id] + position[p] + type[t])). A model may
// lack positions, types, the bias of the norm, and the norm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

// Indices that both directions need. The sizes guard the tables: an id outside them is an
// InvalidArgument that names the row.
struct EmbeddingIndices {
  const std::int32_t* word = nullptr;  // [rows] in [0, vocab_size)
  // [rows] in [0, max_positions), or null: the model has no table of positions.
  const std::int32_t* position = nullptr;
  // [rows] in [0, type_vocab_size), or null: the model has no token types.
  const std::int32_t* type = nullptr;
  std::size_t vocab_size = 0;
  std::size_t max_positions = 0;
  std::size_t type_vocab_size = 0;
};

// NEFTune (Jain et al. 2023): to every element of the sum of the embeddings is added a uniform
// number in (−m, m), m = alpha/sqrt(rows of the sequence · H), drawn as dropout draws: a function
// of seed, step, site, sample, row within its sequence and column. alpha = 0: none.
struct EmbeddingNoise {
  float alpha = 0;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t site = 0;
};

template <class T>
struct EmbeddingForward {
  const float* word = nullptr;      // [vocab_size, H] f32
  const float* position = nullptr;  // [max_positions, H] f32, or null as in the indices
  const float* type = nullptr;      // [type_vocab_size, H] f32, or null as in the indices
  const float* gamma = nullptr;     // [H], or null: no norm, and sum, mean and rstd are not written
  const float* beta = nullptr;      // [H] or null
  float eps = 1e-12f;
  float* y = nullptr;         // [rows, H] f32, overwritten
  T* y_copy = nullptr;        // [rows, H] T or null, overwritten
  float* sum = nullptr;       // [rows, H] f32, saved: the sum of the embeddings
  float* mean = nullptr;      // [rows] f32, saved
  float* rstd = nullptr;      // [rows] f32, saved
  EmbeddingNoise noise = {};  // in `sum` too, so backward need not know of it
};

template <class T>
void embedding_forward(const Context& ctx, const Sequences& sequences, std::size_t H,
                       const EmbeddingIndices& indices, const Dropout& dropout,
                       const EmbeddingForward<T>& args);

struct EmbeddingBackward {
  float* grad_y = nullptr;       // [rows, H] f32; overwritten with the gradient of the sum
  const float* sum = nullptr;    // saved by forward
  const float* mean = nullptr;   // saved by forward
  const float* rstd = nullptr;   // saved by forward
  const float* gamma = nullptr;  // [H], or null as in forward
  // Gradients of parameters; null: not wanted.
  float* grad_word = nullptr;          // [vocab_size, H] f32
  float* grad_position = nullptr;      // [max_positions, H] f32
  float* grad_type = nullptr;          // [type_vocab_size, H] f32
  float* grad_gamma = nullptr;         // [H] f32
  float* grad_beta = nullptr;          // [H] f32
  std::int32_t padding_idx = -1;       // rows with this word id add nothing to grad_word; -1: none
  std::int32_t padding_position = -1;  // the same of grad_position
  bool accumulate = false;  // otherwise every gradient, whole tables included, is overwritten
  // grad_word has a part of the gradient already, whatever `accumulate` is: that of the output
  // layer, which shares the table.
  bool word_begun = false;
};

// Rows are added to the tables in row order, whatever the number of threads.
void embedding_backward(const Context& ctx, const Sequences& sequences, std::size_t H,
                        const EmbeddingIndices& indices, const Dropout& dropout,
                        const EmbeddingBackward& args);

}  // namespace tandem::kernels
