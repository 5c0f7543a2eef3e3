#include "tandem/models/encoder.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "tandem/kernels/reduce.h"
#include "tandem/nn/linear.h"

namespace tandem::models {
namespace {

using nn::ParameterKind;
using nn::ParameterLayout;

nn::EmbeddingsOptions embeddings_options(const ModelConfig& config) {
  return {.width = config.embedding_width(),
          .vocab_size = config.vocab_size,
          .max_position_embeddings = config.max_position_embeddings,
          .type_vocab_size = config.type_vocab_size,
          .padding_idx = config.pad_token_id,
          .positions = config.family->positions,
          .reads_token_types = config.family->reads_token_types,
          .positions_trainable = !config.sinusoidal_pos_embds,
          .layer_norm_eps = config.layer_norm_eps,
          .dropout = config.hidden_dropout_prob};
}

nn::EmbeddingsParameters add_embeddings(ParameterLayout& layout, const std::string& name,
                                        const nn::EmbeddingsOptions& options) {
  const std::size_t E = options.width;
  nn::EmbeddingsParameters parameters;
  parameters.norm = layout.add_layer_norm(name + "LayerNorm", E);
  if (options.type_vocab_size > 0) {
    parameters.type = layout.add(name + "token_type_embeddings.weight",
                                 {options.type_vocab_size, E}, ParameterKind::kEmbedding);
  }
  parameters.position =
      layout.add(name + "position_embeddings.weight", {options.max_position_embeddings, E},
                 ParameterKind::kEmbedding, options.positions_trainable);
  parameters.word = layout.add(name + "word_embeddings.weight", {options.vocab_size, E},
                               ParameterKind::kEmbedding);
  return parameters;
}

}  // namespace

Encoder::Encoder(const ModelConfig& config, ParameterLayout& layout)
    : hidden_size_(config.hidden_size),
      layers_(config.num_hidden_layers),
      embeddings_options_(embeddings_options(config)) {
  for (std::size_t index = layers_.size(); index-- > 0;) {
    layers_[index] = make_layer(config, index, layout);
  }
  const std::string name = fmt::format("{}embeddings", config.family->base_prefix);
  if (config.has_projection()) {
    projection_ = layout.add_linear("embeddings project", name + "_project", hidden_size_,
                                    embeddings_options_.width);
  }
  embeddings_ = add_embeddings(layout, name + ".", embeddings_options_);
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
  layer.parameters.output_norm = layout.add_layer_norm(name(names.output_norm), H);
  layer.parameters.output = layout.add_linear("down", name(names.output), H, I);
  layer.parameters.intermediate = layout.add_linear("up", name(names.intermediate), I, H);
  layer.parameters.attention_norm = layout.add_layer_norm(name(names.attention_norm), H);
  layer.parameters.attention_output =
      layout.add_linear("attention output", name(names.attention_output), H, H);
  // Query, key and value one behind the other, so that one product with a [3H, H] matrix computes
  // all three.
  const std::array qkv = {name(names.query), name(names.key), name(names.value)};
  layer.parameters.qkv = layout.add_linear("qkv", qkv, H, H);
  layer.end = layout.size();
  return layer;
}

template <class T>
void Encoder::plan_tensors(Arena& arena, std::size_t rows, std::size_t first_rows, PassKind kind,
                           EncoderTensors<T>& tensors) const {
  using Hidden = nn::Hidden<T>;
  using TransformerLayer = nn::TransformerLayer<T>;
  const bool training = is_training(kind);
  const bool keeps_hidden = EncoderTensors<T>::keeps_hidden(kind);
  const std::size_t H = hidden_size_;
  const std::span<float> stream = Hidden::allocate_stream(arena, rows, H);

  tensors.embeddings = nn::EmbeddingsActivations::allocate(arena, embeddings_options_, rows);
  if (projection_) {
    const std::size_t size = rows * embeddings_options_.width;
    tensors.embedded = arena.allocate<float>(size);
    if (training) tensors.grad_embedded = arena.allocate<float>(size);
  }
  tensors.hidden.resize(layers_.size() + 1);
  tensors.layers.resize(layers_.size());
  // The first layer's input went through dropout, so it is kept as it is; a checkpointed layer
  // is recomputed from its residual too.
  const std::span<float> first_stream =
      kind == PassKind::kCheckpointed ? Hidden::allocate_stream(arena, rows, H) : stream;
  tensors.hidden[0] = Hidden::allocate(arena, rows, H, first_stream);
  const Hidden shared =
      training && !keeps_hidden ? Hidden::allocate(arena, rows, H, stream) : tensors.hidden[0];
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const bool own_memory = kind == PassKind::kTraining || l == 0;
    const bool narrow = first_rows > 0 && kind == PassKind::kTraining && l + 1 == layers_.size();
    tensors.layers[l] = own_memory ? TransformerLayer::allocate(arena, layers_[l].options,
                                                                {rows, narrow ? first_rows : rows})
                                   : tensors.layers[0];
    if (kind == PassKind::kCheckpointed && l > 0) {
      tensors.layers[l].output_norm = nn::LayerNormActivations::allocate(arena, rows, H);
    }
    tensors.hidden[l + 1] = keeps_hidden ? Hidden::allocate(arena, rows, H, stream) : shared;
  }
  tensors.scratch = TransformerLayer::allocate_scratch(arena, layers_[0].options, rows, first_rows,
                                                       stream, training);
}

void Encoder::plan(Arena& arena, std::size_t rows, std::size_t first_rows, PassKind kind,
                   EncoderActivations& activations) const {
  activations.kind = kind;
  std::visit(
      [&](auto& tensors) {
        plan_tensors(arena, rows, first_rows, kind, tensors);
        activations.output = tensors.hidden.back().residual;
      },
      activations.tensors);
  activations.grad =
      is_training(kind) ? arena.allocate<float>(rows * hidden_size_) : std::span<float>();
}

// The projection is computed in f32: its output is the first layer's residual.
template <class T>
void Encoder::embeddings_forward(const nn::Pass& pass, const nn::PackedBatch& batch,
                                 const EncoderTensors<T>& tensors) const {
  const nn::Hidden<T>& first = tensors.hidden[0];
  if (!projection_) {
    nn::embeddings_forward<T>(pass, embeddings_options_, embeddings_, batch, tensors.embeddings,
                              first);
    return;
  }
  nn::embeddings_forward<float>(pass, embeddings_options_, embeddings_, batch, tensors.embeddings,
                                {tensors.embedded, tensors.embedded});
  nn::linear_forward<float>(pass, *projection_, tensors.embedded, first.residual);
  if constexpr (!std::is_same_v<T, float>) {
    kernels::convert(pass.context, first.residual.size(), first.residual.data(),
                     first.operand.data());
  }
}

template <class T>
void Encoder::embeddings_backward(const nn::Pass& pass, const nn::PackedBatch& batch,
                                  const EncoderTensors<T>& tensors, std::span<float> grad,
                                  const nn::Gradients& grads) const {
  if (projection_) {
    nn::linear_backward<float, float>(pass, *projection_, tensors.embedded, grad,
                                      tensors.grad_embedded, /*accumulate_grad_x=*/false, grads);
    grad = tensors.grad_embedded;
  }
  nn::embeddings_backward(pass, embeddings_options_, embeddings_, batch, tensors.embeddings, grad,
                          grads);
}

// The last layer alone may go on with first rows only: the others' rows all read each other.
template <class T>
nn::TransformerLayer<T> Encoder::layer(const nn::Pass& pass, const nn::Pass* first_rows,
                                       std::size_t l) const {
  return {pass, l + 1 == layers_.size() ? first_rows : nullptr, layers_[l].options,
          layers_[l].parameters};
}

template <class T>
void Encoder::layers_forward(const nn::Pass& pass, const nn::PackedBatch& batch,
                             const EncoderTensors<T>& tensors, const nn::Pass* first_rows) const {
  embeddings_forward(pass, batch, tensors);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    layer<T>(pass, first_rows, l)
        .forward(tensors.hidden[l], tensors.layers[l], tensors.scratch, tensors.hidden[l + 1]);
  }
}

void Encoder::forward(const nn::Pass& pass, const nn::PackedBatch& batch,
                      const EncoderActivations& activations, const nn::Pass* first_rows) const {
  std::visit([&](const auto& tensors) { layers_forward(pass, batch, tensors, first_rows); },
             activations.tensors);
}

// What the backward of `layer`, the one with index l, reads and forward did not keep.
template <class T>
void Encoder::recompute(const nn::Pass& pass, const EncoderTensors<T>& tensors, PassKind kind,
                        const nn::TransformerLayer<T>& layer, std::size_t l) const {
  const bool checkpointed = kind == PassKind::kCheckpointed;
  if (!checkpointed) layer.recompute_from_sums(tensors.layers[l], tensors.scratch);
  if (l > 0 && !EncoderTensors<T>::keeps_hidden(kind)) {
    const Layer& before = layers_[l - 1];
    nn::layer_norm_recompute<T>(pass, before.parameters.output_norm,
                                tensors.layers[l - 1].output_norm,
                                /*residual=*/checkpointed, tensors.hidden[l]);
  }
  if (checkpointed)
    layer.recompute_from_input(tensors.hidden[l], tensors.layers[l], tensors.scratch);
}

template <class T>
void Encoder::layers_backward(const nn::Pass& pass, const EncoderTensors<T>& tensors, PassKind kind,
                              const nn::Pass* first_rows, std::span<float> grad,
                              const nn::Gradients& grads,
                              FunctionRef<void(std::size_t end)> gradient_ready) const {
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const nn::TransformerLayer<T> layer = this->layer<T>(pass, first_rows, l);
    recompute(pass, tensors, kind, layer, l);
    layer.backward(tensors.hidden[l], tensors.layers[l], tensors.scratch, grad, grads);
    gradient_ready(layers_[l].end);
  }
}

void Encoder::backward(const nn::Pass& pass, const nn::PackedBatch& batch,
                       const EncoderActivations& activations, const nn::Pass* first_rows,
                       const nn::Gradients& grads,
                       FunctionRef<void(std::size_t end)> gradient_ready) const {
  std::visit(
      [&](const auto& tensors) {
        layers_backward(pass, tensors, activations.kind, first_rows, activations.grad, grads,
                        gradient_ready);
        embeddings_backward(pass, batch, tensors, activations.grad, grads);
      },
      activations.tensors);
  gradient_ready(end_);
}

}  // namespace tandem::models
