#include "tandem/models/encoder/encoder.h"

#include <fmt/format.h>

#include <algorithm>
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
          .normed = !config.family->embeddings.norm.empty(),
          .positions_trainable = !config.sinusoidal_pos_embds,
          .layer_norm_eps = config.layer_norm_eps,
          .dropout = config.embeddings_dropout_prob()};
}

double weights_of(const nn::Linear& linear) {
  return static_cast<double>(linear.out_features) * static_cast<double>(linear.in_features);
}

// A head that reads first rows gets those of the last layer that mixes rows.
std::size_t last_mixing(const LayerTable& table) {
  std::size_t last = table.layers.size() - 1;
  while (last > 0 && !table.layers[last].layer->traits().mixes_rows) --last;
  return last;
}

template <class T>
constexpr nn::Precision precision_of() {
  return std::is_same_v<T, float> ? nn::Precision::kFloat32 : nn::Precision::kBfloat16;
}

// Layers compute in the precision of the pass: nothing else reads their matrices.
LayerTable add_layers(const ModelConfig& config, ParameterLayout& layout) {
  layout.set_adds_operands(true);
  LayerTable table = config.family->layers->make(config, layout);
  layout.set_adds_operands(false);
  return table;
}

nn::EmbeddingsParameters add_embeddings(ParameterLayout& layout, const Family& family,
                                        const std::string& name,
                                        const nn::EmbeddingsOptions& options) {
  const std::size_t E = options.width;
  nn::EmbeddingsParameters parameters;
  parameters.norm = {nn::kNoParameter, nn::kNoParameter};
  if (options.normed) {
    parameters.norm =
        layout.add_layer_norm(fmt::format("{}{}", name, family.embeddings.norm), E, family.bias);
  }
  if (options.type_vocab_size > 0) {
    parameters.type = layout.add(name + "token_type_embeddings.weight",
                                 {options.type_vocab_size, E}, ParameterKind::kEmbedding);
  }
  parameters.position = nn::kNoParameter;
  if (options.positions != nn::Positions::kNone) {
    parameters.position = layout.add(fmt::format("{}{}.weight", name, family.embeddings.position),
                                     {options.max_position_embeddings, E},
                                     ParameterKind::kEmbedding, options.positions_trainable);
  }
  parameters.word =
      layout.add(word_embeddings_name(family), {options.vocab_size, E}, ParameterKind::kEmbedding);
  return parameters;
}

}  // namespace

Encoder::Encoder(const ModelConfig& config, ParameterLayout& layout)
    : hidden_size_(config.hidden_size),
      table_(add_layers(config, layout)),
      shared_end_(layout.trained_size()),
      last_mixing_(last_mixing(table_)),
      embeddings_options_(embeddings_options(config)) {
  const std::string_view prefix = config.family->base_prefix;
  if (config.has_projection()) {
    projection_ =
        layout.add_linear("embeddings project", fmt::format("{}embeddings_project", prefix),
                          hidden_size_, embeddings_options_.width);
  }
  embeddings_ = add_embeddings(layout, *config.family,
                               fmt::format("{}{}", prefix, config.family->embeddings.prefix),
                               embeddings_options_);
  end_ = layout.trained_size();
}

std::size_t Encoder::lowest_trained() const {
  if (embeddings_trained()) return 0;
  if (table_.shared && shared_end_ > table_.layers.front().end) return 0;
  std::size_t lowest = 0;
  while (lowest < table_.layers.size() && !table_.layers[lowest].trained) ++lowest;
  return lowest;
}

void Encoder::count_products(double rows, double keys, bool first_row, LayerRange layers,
                             Layer::AddProducts add) const {
  for (std::size_t l = layers.begin; l < layers.end; ++l) {
    const double in = first_row && l > last_mixing_ ? 1 : rows;
    const double out = first_row && l >= last_mixing_ ? 1 : rows;
    layer(l).count_products({.rows = in, .keys = keys, .output_rows = out}, add);
  }
  if (projection_ && layers.begin == 0 && layers.end > 0)
    add("embeddings project", weights_of(*projection_) * rows);
}

void Encoder::count_shared_products(std::size_t longest, LayerRange layers,
                                    Layer::AddProducts add) const {
  for (std::size_t l = layers.begin; l < std::min(layers.end, last_mixing_ + 1); ++l)
    layer(l).count_shared_products(longest, add);
}

// first_rows: 0, or the rows that alone continue after the last layer whose rows read each other.
LayerRows Encoder::rows_of(std::size_t l, std::size_t rows, std::size_t first_rows) const {
  if (first_rows == 0 || l < last_mixing_) return {.all = rows};
  if (l == last_mixing_) return {.all = rows, .first = first_rows};
  return {.all = first_rows};
}

// The largest of any layer, with and without first rows.
LayerBytes Encoder::bytes_of(std::size_t rows, std::size_t first_rows, nn::Precision precision,
                             bool training) const {
  LayerBytes largest;
  for (std::size_t l = 0; l < table_.layers.size(); ++l) {
    for (const std::size_t first : {std::size_t{0}, first_rows}) {
      const LayerBytes bytes = layer(l).bytes(rows_of(l, rows, first), precision, training);
      largest.kept = std::max(largest.kept, bytes.kept);
      largest.saved = std::max(largest.saved, bytes.saved);
      largest.scratch = std::max(largest.scratch, bytes.scratch);
    }
  }
  return largest;
}

// Whether the output of layer l stays from forward to backward.
template <class T>
bool Encoder::keeps_output(PassKind kind, std::size_t l) const {
  return EncoderTensors<T>::keeps_hidden(kind) ||
         (is_training(kind) && !layer(l).traits().restores_output);
}

// The first layer's input went through dropout, so it is kept as it is; a checkpointed layer is
// recomputed from its residual too.
template <class T>
void Encoder::plan_hidden(Arena& arena, std::size_t rows, PassKind kind,
                          EncoderTensors<T>& tensors) const {
  using Hidden = nn::Hidden<T>;
  const std::size_t H = hidden_size_, L = table_.layers.size();
  const std::span<float> stream = Hidden::allocate_stream(arena, rows, H);
  const auto allocate = [&](bool own_residual) {
    return Hidden::allocate(arena, rows, H,
                            own_residual ? Hidden::allocate_stream(arena, rows, H) : stream);
  };
  const bool training = is_training(kind);
  tensors.hidden.resize(L + 1);
  tensors.hidden[0] = allocate(kind == PassKind::kCheckpointed ||
                               (training && layer(0).traits().backward_reads_residual));
  std::optional<Hidden> shared;
  for (std::size_t l = 0; l < L; ++l) {
    if (keeps_output<T>(kind, l)) {
      const bool stream_alone = !std::is_same_v<T, float> &&
                                !EncoderTensors<T>::keeps_hidden(kind) && l + 1 < L &&
                                !layer(l + 1).traits().reads_operand;
      tensors.hidden[l + 1] =
          stream_alone ? Hidden{Hidden::allocate_stream(arena, rows, H), {}} : allocate(true);
      continue;
    }
    if (!shared) shared = training ? allocate(false) : tensors.hidden[0];
    tensors.hidden[l + 1] = *shared;
  }
}

template <class T>
void Encoder::plan_layers(Arena& arena, std::size_t rows, std::size_t first_rows, PassKind kind,
                          EncoderTensors<T>& tensors) const {
  const bool training = is_training(kind), saves = kind == PassKind::kTraining;
  const LayerBytes largest = bytes_of(rows, first_rows, precision_of<T>(), training);
  LayerMemory all;
  all.scratch = arena.allocate<std::byte>(largest.scratch);
  if (!saves) all.saved = arena.allocate<std::byte>(largest.saved);
  if (!training) all.kept = arena.allocate<std::byte>(largest.kept);
  tensors.layers.assign(table_.layers.size(), all);
  for (std::size_t l = 0; training && l < table_.layers.size(); ++l) {
    const LayerBytes own =
        layer(l).bytes(rows_of(l, rows, saves ? first_rows : 0), precision_of<T>(), training);
    tensors.layers[l].kept = arena.allocate<std::byte>(own.kept);
    if (saves) tensors.layers[l].saved = arena.allocate<std::byte>(own.saved);
  }
  if (table_.shared) {
    tensors.shared =
        arena.allocate<std::byte>(table_.shared->bytes(rows, precision_of<T>(), training));
  }
}

template <class T>
void Encoder::plan_tensors(Arena& arena, std::size_t rows, std::size_t first_rows, PassKind kind,
                           EncoderTensors<T>& tensors) const {
  tensors.embeddings = nn::EmbeddingsActivations::allocate(arena, embeddings_options_, rows);
  if (projection_) {
    const std::size_t size = rows * embeddings_options_.width;
    tensors.embedded = arena.allocate<float>(size);
    if (is_training(kind)) tensors.grad_embedded = arena.allocate<float>(size);
  }
  plan_hidden(arena, rows, kind, tensors);
  plan_layers(arena, rows, first_rows, kind, tensors);
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

// The last layer whose rows read each other may continue with first rows only; the layers behind it
// then have no others.
template <class T>
LayerPass<T> Encoder::layer_pass(const nn::Pass& pass, const EncoderTensors<T>& tensors,
                                 PassKind kind, const nn::Pass* first_rows, std::size_t l) const {
  const bool behind = first_rows != nullptr && l > last_mixing_;
  const nn::Pass& rows = behind ? *first_rows : pass;
  const std::size_t size = rows.rows() * hidden_size_;
  return {.rows = rows,
          .first_rows = l == last_mixing_ ? first_rows : nullptr,
          .kind = kind,
          .x = tensors.hidden[l].first(size),
          .y = tensors.hidden[l + 1].first(size),
          .memory = tensors.layers[l],
          .shared = tensors.shared};
}

template <class T>
void Encoder::layers_forward(const nn::Pass& pass, const EncoderTensors<T>& tensors, PassKind kind,
                             const nn::Pass* first_rows, std::span<KeyValues* const> past) const {
  if (table_.shared) table_.shared->forward(pass, tensors.shared);
  std::vector<T*> key_values(past.size());
  for (std::size_t l = 0; l < table_.layers.size(); ++l) {
    LayerPass<T> given = layer_pass(pass, tensors, kind, first_rows, l);
    for (std::size_t i = 0; i < past.size(); ++i)
      key_values[i] = past[i]->template of_layer<T>(l).data();
    given.key_values = key_values;
    layer(l).forward(given);
  }
}

std::vector<std::size_t> Encoder::key_value_widths() const {
  std::vector<std::size_t> widths;
  for (const LayerTable::Entry& entry : table_.layers)
    widths.push_back(entry.layer->key_value_width());
  return widths;
}

void Encoder::forward(const nn::Pass& pass, const nn::PackedBatch& batch,
                      const EncoderActivations& activations, const nn::Pass* first_rows,
                      std::span<KeyValues* const> past) const {
  std::visit(
      [&](const auto& tensors) {
        embeddings_forward(pass, batch, tensors);
        layers_forward(pass, tensors, activations.kind, first_rows, past);
      },
      activations.tensors);
}

template <class T>
void Encoder::layers_backward(const nn::Pass& pass, const EncoderTensors<T>& tensors, PassKind kind,
                              const nn::Pass* first_rows, std::span<float> grad,
                              const nn::Gradients& grads,
                              FunctionRef<void(std::size_t end)> gradient_ready) const {
  if (table_.shared) table_.shared->clear_sums(pass, tensors.shared);
  for (std::size_t l = table_.layers.size(); l-- > lowest_trained();) {
    const LayerPass<T> given = layer_pass(pass, tensors, kind, first_rows, l);
    if (l > 0 && !keeps_output<T>(kind, l - 1)) {
      const bool residual =
          kind == PassKind::kCheckpointed || layer(l).traits().backward_reads_residual;
      layer(l - 1).restore_output(layer_pass(pass, tensors, kind, first_rows, l - 1), residual);
    }
    layer(l).backward(given, grad.first(given.rows.rows() * hidden_size_), grads);
    gradient_ready(table_.layers[l].end);
  }
  if (!table_.shared) return;
  table_.shared->backward(pass, tensors.shared, grads);
  gradient_ready(shared_end_);
}

void Encoder::backward(const nn::Pass& pass, const nn::PackedBatch& batch,
                       const EncoderActivations& activations, const nn::Pass* first_rows,
                       const nn::Gradients& grads,
                       FunctionRef<void(std::size_t end)> gradient_ready) const {
  std::visit(
      [&](const auto& tensors) {
        layers_backward(pass, tensors, activations.kind, first_rows, activations.grad, grads,
                        gradient_ready);
        if (embeddings_trained())
          embeddings_backward(pass, batch, tensors, activations.grad, grads);
      },
      activations.tensors);
  gradient_ready(end_);
}

}  // namespace tandem::models
