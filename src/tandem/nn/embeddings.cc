#include "tandem/nn/embeddings.h"

#include <algorithm>

#include "tandem/core/profile.h"
#include "tandem/kernels/embedding.h"

namespace tandem::nn {
namespace {

void number_rows(const EmbeddingsOptions& options, const PackedBatch& batch, const Pass& pass,
                 std::span<std::int32_t> positions) {
  if (options.positions == Positions::kNone) return;
  const bool counts_rows = options.positions == Positions::kRows;
  for (std::size_t i = 0; i < batch.num_sequences(); ++i) {
    const auto past = static_cast<std::int32_t>(pass.past_rows_of(i));
    std::int32_t last = past + (counts_rows ? -1 : options.padding_idx);
    for (std::size_t row = batch.row_begin[i]; row < batch.row_begin[i + 1]; ++row) {
      const bool is_padding = !counts_rows && batch.input_ids[row] == options.padding_idx;
      positions[row] = is_padding ? options.padding_idx : ++last;
    }
  }
}

const std::int32_t* types_of(const EmbeddingsOptions& options, const PackedBatch& batch,
                             const EmbeddingsActivations& saved) {
  if (options.type_vocab_size == 0) return nullptr;
  return options.reads_token_types ? batch.token_type_ids.data() : saved.types.data();
}

kernels::EmbeddingIndices indices_of(const EmbeddingsOptions& options, const PackedBatch& batch,
                                     const EmbeddingsActivations& saved) {
  return {.word = batch.input_ids.data(),
          .position = options.positions == Positions::kNone ? nullptr : saved.positions.data(),
          .type = types_of(options, batch, saved),
          .vocab_size = options.vocab_size,
          .max_positions = options.max_position_embeddings,
          .type_vocab_size = options.type_vocab_size};
}

kernels::Dropout dropout_of(const Pass& pass, const EmbeddingsOptions& options) {
  return pass.dropout.at(0, DropoutSite::kInput, options.dropout);
}

kernels::EmbeddingNoise noise_of(const DropoutStream& stream) {
  const kernels::Dropout noise = stream.at(0, DropoutSite::kEmbeddingNoise, 0);
  return {.alpha = stream.enabled ? static_cast<float>(stream.embedding_noise) : 0.0f,
          .seed = noise.seed,
          .step = noise.step,
          .site = noise.site};
}

}  // namespace

EmbeddingsActivations EmbeddingsActivations::allocate(Arena& arena,
                                                      const EmbeddingsOptions& options,
                                                      std::size_t rows) {
  const bool zeros = options.type_vocab_size > 0 && !options.reads_token_types;
  const std::size_t numbered = options.positions == Positions::kNone ? 0 : rows;
  return {.norm = options.normed ? LayerNormActivations::allocate(arena, rows, options.width)
                                 : LayerNormActivations{},
          .positions = arena.allocate<std::int32_t>(numbered),
          .types = zeros ? arena.allocate<std::int32_t>(rows) : std::span<std::int32_t>()};
}

template <class T>
void embeddings_forward(const Pass& pass, const EmbeddingsOptions& options,
                        const EmbeddingsParameters& parameters, const PackedBatch& batch,
                        const EmbeddingsActivations& saved, const Hidden<T>& y) {
  number_rows(options, batch, pass, saved.positions);
  std::fill(saved.types.begin(), saved.types.end(), 0);
  const Weights& weights = pass.weights;
  const kernels::EmbeddingForward<T> args = {
      .word = weights.vector(parameters.word),
      .position = weights.vector(parameters.position),
      .type = options.type_vocab_size == 0 ? nullptr : weights.vector(parameters.type),
      .gamma = weights.vector(parameters.norm.weight),
      .beta = weights.vector(parameters.norm.bias),
      .eps = static_cast<float>(options.layer_norm_eps),
      .y = y.residual.data(),
      .y_copy = y.copy(),
      .sum = saved.norm.sum.data(),
      .mean = saved.norm.mean.data(),
      .rstd = saved.norm.rstd.data(),
      .noise = noise_of(pass.dropout)};
  const StageTimer timer(pass.context.profile, "embeddings", "forward");
  kernels::embedding_forward<T>(pass.context, pass.sequences, options.width,
                                indices_of(options, batch, saved), dropout_of(pass, options), args);
}

void embeddings_backward(const Pass& pass, const EmbeddingsOptions& options,
                         const EmbeddingsParameters& parameters, const PackedBatch& batch,
                         const EmbeddingsActivations& saved, std::span<float> grad,
                         const Gradients& grads) {
  float* const grad_position = grads.at(parameters.position);
  float* const grad_word = grads.at(parameters.word);
  float* const grad_type = options.type_vocab_size == 0 ? nullptr : grads.at(parameters.type);
  float* const grad_gamma = grads.at(parameters.norm.weight);
  if (grad_word == nullptr && grad_position == nullptr && grad_type == nullptr &&
      grad_gamma == nullptr)
    return;  // frozen
  const StageTimer timer(pass.context.profile, "embeddings", "backward");
  const kernels::EmbeddingBackward args = {
      .grad_y = grad.data(),
      .sum = saved.norm.sum.data(),
      .mean = saved.norm.mean.data(),
      .rstd = saved.norm.rstd.data(),
      .gamma = pass.weights.vector(parameters.norm.weight),
      .grad_word = grad_word,
      .grad_position = grad_position,
      .grad_type = grad_type,
      .grad_gamma = grad_gamma,
      .grad_beta = grads.at(parameters.norm.bias),
      .padding_idx = options.padding_idx,
      .padding_position = options.positions == Positions::kTokens ? options.padding_idx : -1,
      .accumulate = grads.accumulate,
      .word_begun = grads.words_begun};
  kernels::embedding_backward(pass.context, pass.sequences, options.width,
                              indices_of(options, batch, saved), dropout_of(pass, options), args);
  if (grad_position != nullptr && !options.positions_trainable) {
    std::fill_n(grad_position, options.max_position_embeddings * options.width, 0.0f);
  }
}

template void embeddings_forward<float>(const Pass&, const EmbeddingsOptions&,
                                        const EmbeddingsParameters&, const PackedBatch&,
                                        const EmbeddingsActivations&, const Hidden<float>&);
template void embeddings_forward<bfloat16>(const Pass&, const EmbeddingsOptions&,
                                           const EmbeddingsParameters&, const PackedBatch&,
                                           const EmbeddingsActivations&, const Hidden<bfloat16>&);

}  // namespace tandem::nn
