#include "tandem/nn/embeddings.h"

#include <algorithm>

#include "tandem/core/profile.h"
#include "tandem/kernels/embedding.h"

namespace tandem::nn {
namespace {

kernels::EmbeddingIndices indices_of(const EmbeddingsOptions& options, const PackedBatch& batch) {
  return {.word = batch.input_ids.data(),
          .position = batch.position_ids.data(),
          .type = options.type_vocab_size == 0 ? nullptr : batch.token_type_ids.data(),
          .vocab_size = options.vocab_size,
          .max_positions = options.max_position_embeddings,
          .type_vocab_size = options.type_vocab_size};
}

kernels::Dropout dropout_of(const Pass& pass, const EmbeddingsOptions& options) {
  return pass.dropout.at(0, DropoutPlace::kInput, options.dropout);
}

kernels::EmbeddingNoise noise_of(const DropoutStream& stream) {
  const kernels::Dropout place = stream.at(0, DropoutPlace::kEmbeddingNoise, 0);
  return {.alpha = stream.enabled ? static_cast<float>(stream.embedding_noise) : 0.0f,
          .seed = place.seed,
          .step = place.step,
          .site = place.site};
}

}  // namespace

template <class T>
void embeddings_forward(const Pass& pass, const EmbeddingsOptions& options,
                        const EmbeddingsParameters& parameters, const PackedBatch& batch,
                        const LayerNormActivations& saved, const Hidden<T>& y) {
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
      .sum = saved.sum.data(),
      .mean = saved.mean.data(),
      .rstd = saved.rstd.data(),
      .noise = noise_of(pass.dropout)};
  const StageTimer timer(pass.context.profile, "embeddings", "forward");
  kernels::embedding_forward<T>(pass.context, pass.sequences, options.hidden_size,
                                indices_of(options, batch), dropout_of(pass, options), args);
}

void embeddings_backward(const Pass& pass, const EmbeddingsOptions& options,
                         const EmbeddingsParameters& parameters, const PackedBatch& batch,
                         const LayerNormActivations& saved, std::span<float> grad,
                         const Gradients& grads) {
  const StageTimer timer(pass.context.profile, "embeddings", "backward");
  float* const grad_position = grads.at(parameters.position);
  const kernels::EmbeddingBackward args = {
      .grad_y = grad.data(),
      .sum = saved.sum.data(),
      .mean = saved.mean.data(),
      .rstd = saved.rstd.data(),
      .gamma = pass.weights.vector(parameters.norm.weight),
      .grad_word = grads.at(parameters.word),
      .grad_position = grad_position,
      .grad_type = options.type_vocab_size == 0 ? nullptr : grads.at(parameters.type),
      .grad_gamma = grads.at(parameters.norm.weight),
      .grad_beta = grads.at(parameters.norm.bias),
      .padding_idx = options.padding_idx,
      .accumulate = grads.accumulate};
  kernels::embedding_backward(pass.context, pass.sequences, options.hidden_size,
                              indices_of(options, batch), dropout_of(pass, options), args);
  if (!options.positions_trainable) {
    std::fill_n(grad_position, options.max_position_embeddings * options.hidden_size, 0.0f);
  }
}

template void embeddings_forward<float>(const Pass&, const EmbeddingsOptions&,
                                        const EmbeddingsParameters&, const PackedBatch&,
                                        const LayerNormActivations&, const Hidden<float>&);
template void embeddings_forward<bfloat16>(const Pass&, const EmbeddingsOptions&,
                                           const EmbeddingsParameters&, const PackedBatch&,
                                           const LayerNormActivations&, const Hidden<bfloat16>&);

}  // namespace tandem::nn
