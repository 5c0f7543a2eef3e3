#include "tandem/models/encoder.h"

#include <fmt/format.h>

#include <string>

namespace tandem::models {
namespace {

using nn::ParameterKind;
using nn::ParameterLayout;

nn::LinearParameters add_linear(ParameterLayout& layout, const std::string& name,
                                std::size_t out_features, std::size_t in_features) {
  const std::size_t weight =
      layout.add(name + ".weight", {out_features, in_features}, ParameterKind::kWeight);
  const std::size_t bias = layout.add(name + ".bias", {out_features}, ParameterKind::kBias);
  return {weight, bias};
}

nn::LayerNormParameters add_layer_norm(ParameterLayout& layout, const std::string& name,
                                       std::size_t hidden_size) {
  const std::size_t weight =
      layout.add(name + ".weight", {hidden_size}, ParameterKind::kLayerNormWeight);
  const std::size_t bias = layout.add(name + ".bias", {hidden_size}, ParameterKind::kBias);
  return {weight, bias};
}

// Query, key and value one behind the other, so that one product with a [3H, H] matrix computes all
// three.
nn::LinearParameters add_query_key_value(ParameterLayout& layout, const std::string& query,
                                         const std::string& key, const std::string& value,
                                         std::size_t hidden_size) {
  const std::vector<std::size_t> shape = {hidden_size, hidden_size};
  const std::size_t weight = layout.add(query + ".weight", shape, ParameterKind::kWeight);
  layout.add_adjacent(key + ".weight", shape, ParameterKind::kWeight);
  layout.add_adjacent(value + ".weight", shape, ParameterKind::kWeight);
  const std::size_t bias = layout.add(query + ".bias", {hidden_size}, ParameterKind::kBias);
  layout.add_adjacent(key + ".bias", {hidden_size}, ParameterKind::kBias);
  layout.add_adjacent(value + ".bias", {hidden_size}, ParameterKind::kBias);
  return {weight, bias};
}

nn::EmbeddingsOptions embeddings_options(const ModelConfig& config) {
  return {.hidden_size = config.hidden_size,
          .vocab_size = config.vocab_size,
          .max_position_embeddings = config.max_position_embeddings,
          .type_vocab_size = config.type_vocab_size,
          .padding_idx = config.pad_token_id,
          .positions_trainable = !config.sinusoidal_pos_embds,
          .layer_norm_eps = config.layer_norm_eps,
          .dropout = config.hidden_dropout_prob};
}

nn::EmbeddingsParameters add_embeddings(ParameterLayout& layout, const std::string& name,
                                        const nn::EmbeddingsOptions& options) {
  const std::size_t H = options.hidden_size;
  nn::EmbeddingsParameters parameters;
  parameters.norm = add_layer_norm(layout, name + "LayerNorm", H);
  if (options.type_vocab_size > 0) {
    parameters.type = layout.add(name + "token_type_embeddings.weight",
                                 {options.type_vocab_size, H}, ParameterKind::kEmbedding);
  }
  parameters.position =
      layout.add(name + "position_embeddings.weight", {options.max_position_embeddings, H},
                 ParameterKind::kEmbedding, options.positions_trainable);
  parameters.word = layout.add(name + "word_embeddings.weight", {options.vocab_size, H},
                               ParameterKind::kEmbedding);
  return parameters;
}

}  // namespace

Encoder::Encoder(const ModelConfig& config, ParameterLayout& layout)
    : layers_(config.num_hidden_layers), embeddings_options_(embeddings_options(config)) {
  for (std::size_t index = layers_.size(); index-- > 0;) {
    layers_[index] = make_layer(config, index, layout);
  }
  const std::string name = fmt::format("{}embeddings.", config.family->base_prefix);
  embeddings_ = add_embeddings(layout, name, embeddings_options_);
  end_ = layout.size();
}

Encoder::Layer Encoder::make_layer(const ModelConfig& config, std::size_t index,
                                   ParameterLayout& layout) const {
  const LayerNames& names = config.family->layer;
  const auto name = [&](std::string_view part) {
    return fmt::format("{}{}{}.{}", config.family->base_prefix, names.layers, index, part);
  };
  const std::size_t H = config.hidden_size;
  const std::size_t I = config.intermediate_size;

  Layer layer;
  layer.options = {.index = index,
                   .hidden_size = H,
                   .num_heads = config.num_attention_heads,
                   .intermediate_size = I,
                   .activation = config.hidden_act,
                   .layer_norm_eps = config.layer_norm_eps,
                   .attention_dropout = config.attention_probs_dropout_prob,
                   .attention_output_dropout = config.attention_output_dropout_prob(),
                   .feed_forward_dropout = config.hidden_dropout_prob};
  layer.parameters.output_norm = add_layer_norm(layout, name(names.output_norm), H);
  layer.parameters.output = add_linear(layout, name(names.output), H, I);
  layer.parameters.intermediate = add_linear(layout, name(names.intermediate), I, H);
  layer.parameters.attention_norm = add_layer_norm(layout, name(names.attention_norm), H);
  layer.parameters.attention_output = add_linear(layout, name(names.attention_output), H, H);
  layer.parameters.qkv =
      add_query_key_value(layout, name(names.query), name(names.key), name(names.value), H);
  layer.end = layout.size();
  return layer;
}

template <class T>
void Encoder::plan_tensors(Arena& arena, std::size_t rows, PassKind kind,
                           EncoderTensors<T>& tensors) const {
  using Hidden = nn::Hidden<T>;
  using LayerActivations = nn::TransformerLayerActivations<T>;
  const bool training = is_training(kind);
  const bool keeps_hidden = EncoderTensors<T>::keeps_hidden(kind);
  const std::size_t H = embeddings_options_.hidden_size;
  const std::span<float> stream = Hidden::allocate_stream(arena, rows, H);

  tensors.embeddings = nn::LayerNormActivations::allocate(arena, rows, H);
  tensors.hidden.resize(layers_.size() + 1);
  tensors.layers.resize(layers_.size());
  // The first layer's input went through dropout, so it is kept as it is; a checkpointed layer
  // starts again from its residual too.
  const std::span<float> first_stream =
      kind == PassKind::kCheckpointed ? Hidden::allocate_stream(arena, rows, H) : stream;
  tensors.hidden[0] = Hidden::allocate(arena, rows, H, first_stream);
  const Hidden shared =
      training && !keeps_hidden ? Hidden::allocate(arena, rows, H, stream) : tensors.hidden[0];
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const bool own_memory = kind == PassKind::kTraining || l == 0;
    tensors.layers[l] = own_memory ? LayerActivations::allocate(arena, layers_[l].options, rows)
                                   : tensors.layers[0];
    if (kind == PassKind::kCheckpointed && l > 0) {
      tensors.layers[l].output_norm = nn::LayerNormActivations::allocate(arena, rows, H);
    }
    tensors.hidden[l + 1] = keeps_hidden ? Hidden::allocate(arena, rows, H, stream) : shared;
  }
  tensors.scratch =
      nn::TransformerLayerScratch<T>::allocate(arena, layers_[0].options, rows, stream, training);
}

void Encoder::plan(Arena& arena, std::size_t rows, PassKind kind,
                   EncoderActivations& activations) const {
  activations.kind = kind;
  std::visit(
      [&](auto& tensors) {
        plan_tensors(arena, rows, kind, tensors);
        activations.output = tensors.hidden.back().residual;
      },
      activations.tensors);
  activations.grad = is_training(kind)
                         ? arena.allocate<float>(rows * embeddings_options_.hidden_size)
                         : std::span<float>();
}

template <class T>
void Encoder::layers_forward(const nn::Pass& pass, const nn::PackedBatch& batch,
                             const EncoderTensors<T>& tensors) const {
  nn::embeddings_forward<T>(pass, embeddings_options_, embeddings_, batch, tensors.embeddings,
                            tensors.hidden[0]);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    nn::transformer_layer_forward<T>(pass, layers_[l].options, layers_[l].parameters,
                                     tensors.hidden[l], tensors.layers[l], tensors.scratch,
                                     tensors.hidden[l + 1]);
  }
}

void Encoder::forward(const nn::Pass& pass, const nn::PackedBatch& batch,
                      const EncoderActivations& activations) const {
  std::visit([&](const auto& tensors) { layers_forward(pass, batch, tensors); },
             activations.tensors);
}

// Makes again what layer l's backward reads and forward did not keep.
template <class T>
void Encoder::restore_for_backward(const nn::Pass& pass, const EncoderTensors<T>& tensors,
                                   PassKind kind, std::size_t l) const {
  const Layer& layer = layers_[l];
  const bool checkpointed = kind == PassKind::kCheckpointed;
  if (!checkpointed) {
    nn::transformer_layer_restore<T>(pass, layer.parameters, tensors.layers[l], tensors.scratch);
  }
  if (l > 0 && !EncoderTensors<T>::keeps_hidden(kind)) {
    const Layer& before = layers_[l - 1];
    nn::layer_norm_again<T>(pass, before.parameters.output_norm, tensors.layers[l - 1].output_norm,
                            checkpointed ? nn::Again::kBoth : nn::Again::kOperand,
                            tensors.hidden[l]);
  }
  if (checkpointed) {
    nn::transformer_layer_recompute<T>(pass, layer.options, layer.parameters, tensors.hidden[l],
                                       tensors.layers[l], tensors.scratch);
  }
}

template <class T>
void Encoder::layers_backward(const nn::Pass& pass, const EncoderTensors<T>& tensors, PassKind kind,
                              std::span<float> grad, const nn::Gradients& grads,
                              FunctionRef<void(std::size_t end)> gradient_ready) const {
  for (std::size_t l = layers_.size(); l-- > 0;) {
    restore_for_backward(pass, tensors, kind, l);
    nn::transformer_layer_backward<T>(pass, layers_[l].options, layers_[l].parameters,
                                      tensors.hidden[l], tensors.layers[l], tensors.scratch, grad,
                                      grads);
    gradient_ready(layers_[l].end);
  }
}

void Encoder::backward(const nn::Pass& pass, const nn::PackedBatch& batch,
                       const EncoderActivations& activations, const nn::Gradients& grads,
                       FunctionRef<void(std::size_t end)> gradient_ready) const {
  std::visit(
      [&](const auto& tensors) {
        layers_backward(pass, tensors, activations.kind, activations.grad, grads, gradient_ready);
        nn::embeddings_backward(pass, embeddings_options_, embeddings_, batch, tensors.embeddings,
                                activations.grad, grads);
      },
      activations.tensors);
  gradient_ready(end_);
}

}  // namespace tandem::models
