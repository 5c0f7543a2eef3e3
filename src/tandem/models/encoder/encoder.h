// The encoder that all families share: embeddings and a table of layers (layer.h). Families differ
// in parameter names and in their ModelConfig (family.h). EncoderModel puts a head on it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"
#include "tandem/core/thread_pool.h"
#include "tandem/models/encoder/key_values.h"
#include "tandem/models/encoder/layer.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/nn/embeddings.h"
#include "tandem/nn/hidden.h"
#include "tandem/nn/packed_batch.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/nn/pass.h"

namespace tandem::models {

// The activations of one pass; T is the type that products read.
template <class T>
struct EncoderTensors {
  nn::EmbeddingsActivations embeddings;
  // With a projection: [R, E] what it reads, and that memory's gradient (training only).
  std::span<float> embedded, grad_embedded;
  // [L + 1] the embeddings' output, then each layer's. Those that their layer can restore are all
  // the same memory unless keeps_hidden(); backward then brings each back when it is needed.
  std::vector<nn::Hidden<T>> hidden;
  std::vector<LayerMemory> layers;  // [L] what is shared is the same memory in all
  std::span<std::byte> shared;      // the table's SharedPart

  // In f32 the residual stream has a matrix per layer anyway.
  static constexpr bool keeps_hidden(PassKind kind) {
    return kind == PassKind::kTraining && std::is_same_v<T, float>;
  }
};

// The activations of one pass in either precision: the alternative that is there decides. Both
// precisions give and take f32.
struct EncoderActivations {
  PassKind kind = PassKind::kInference;
  std::variant<EncoderTensors<float>, EncoderTensors<bfloat16>> tensors;
  std::span<float> output;  // [R, H] what the encoder gives to a head, or the first rows alone
  std::span<float> grad;    // [R, H] gradient of the residual stream; training only

  nn::Precision precision() const {
    return tensors.index() == 0 ? nn::Precision::kFloat32 : nn::Precision::kBfloat16;
  }
};

struct LayerRange {
  std::size_t begin, end;
};

class Encoder {
 public:
  // Appends the encoder's parameters to `layout`: layer L-1 … layer 0, what the layers share, the
  // projection of the embeddings if there is one, embeddings. `config` is valid.
  Encoder(const ModelConfig& config, nn::ParameterLayout& layout);

  // Lays the activations for `rows` rows of a pass of `kind` out in `arena`, in the precision that
  // `activations` has; allocates from the system only when `activations` is first used.
  // first_rows: the sequences if the head reads first rows; else 0.
  void plan(Arena& arena, std::size_t rows, std::size_t first_rows, PassKind kind,
            EncoderActivations& activations) const;

  // Fills `activations` (planned for pass.rows()).
  // first_rows: null, or the pass of the first row of each sequence, as sequences of one row each,
  // if planned for. Then the output is these rows, [sequences, H], the same bits.
  // past: empty, or what each sequence has kept of the rows before (generation); these rows are
  // kept behind them.
  void forward(const nn::Pass& pass, const nn::PackedBatch& batch,
               const EncoderActivations& activations, const nn::Pass* first_rows,
               std::span<KeyValues* const> past = {}) const;

  // activations.grad begins with the gradient of output and is overwritten. first_rows as in the
  // forward pass before. gradient_ready(end) is called after each layer, after what they share and
  // after the embeddings, when grads [0, end) are final. Where a base is frozen, backward ends at
  // the lowest layer that is trained.
  void backward(const nn::Pass& pass, const nn::PackedBatch& batch,
                const EncoderActivations& activations, const nn::Pass* first_rows,
                const nn::Gradients& grads,
                FunctionRef<void(std::size_t end)> gradient_ready) const;

  // The most rows that a linear layer computes at once in a pass of `rows` rows.
  std::size_t product_rows(std::size_t rows) const {
    return table_.shared ? std::max(rows, table_.shared->product_rows(rows)) : rows;
  }

  // Layer::key_value_width() of each layer.
  std::vector<std::size_t> key_value_widths() const;

  std::size_t num_layers() const { return table_.layers.size(); }
  // The layer at which backward ends; num_layers() if none is reached.
  std::size_t lowest_trained() const;
  // As Layer::count_products(), of these layers, for a sequence with `rows` rows, `keys` of them
  // real tokens. The projection of embeddings counts with layer 0. first_row: the head reads the
  // first row alone.
  void count_products(double rows, double keys, bool first_row, LayerRange layers,
                      Layer::AddProducts add) const;
  // As Layer::count_shared_products(), of these layers.
  void count_shared_products(std::size_t longest, LayerRange layers, Layer::AddProducts add) const;

 private:
  const Layer& layer(std::size_t l) const { return *table_.layers[l].layer; }
  bool embeddings_trained() const { return end_ > shared_end_; }
  LayerRows rows_of(std::size_t l, std::size_t rows, std::size_t first_rows) const;
  LayerBytes bytes_of(std::size_t rows, std::size_t first_rows, nn::Precision precision,
                      bool training) const;
  template <class T>
  bool keeps_output(PassKind kind, std::size_t l) const;
  template <class T>
  void plan_hidden(Arena& arena, std::size_t rows, PassKind kind, EncoderTensors<T>& tensors) const;
  template <class T>
  void plan_layers(Arena& arena, std::size_t rows, std::size_t first_rows, PassKind kind,
                   EncoderTensors<T>& tensors) const;
  template <class T>
  void plan_tensors(Arena& arena, std::size_t rows, std::size_t first_rows, PassKind kind,
                    EncoderTensors<T>& tensors) const;
  template <class T>
  LayerPass<T> layer_pass(const nn::Pass& pass, const EncoderTensors<T>& tensors, PassKind kind,
                          const nn::Pass* first_rows, std::size_t l) const;
  template <class T>
  void layers_forward(const nn::Pass& pass, const EncoderTensors<T>& tensors, PassKind kind,
                      const nn::Pass* first_rows, std::span<KeyValues* const> past) const;
  template <class T>
  void layers_backward(const nn::Pass& pass, const EncoderTensors<T>& tensors, PassKind kind,
                       const nn::Pass* first_rows, std::span<float> grad,
                       const nn::Gradients& grads,
                       FunctionRef<void(std::size_t end)> gradient_ready) const;

  template <class T>
  void embeddings_forward(const nn::Pass& pass, const nn::PackedBatch& batch,
                          const EncoderTensors<T>& tensors) const;
  template <class T>
  void embeddings_backward(const nn::Pass& pass, const nn::PackedBatch& batch,
                           const EncoderTensors<T>& tensors, std::span<float> grad,
                           const nn::Gradients& grads) const;

  std::size_t hidden_size_;
  LayerTable table_;
  std::size_t shared_end_;   // end of the gradients of the table's parameters
  std::size_t last_mixing_;  // the last layer whose rows read each other: behind it any rows may go
  nn::EmbeddingsOptions embeddings_options_;
  nn::EmbeddingsParameters embeddings_;
  std::optional<nn::Linear> projection_;  // from the embeddings to the first layer
  std::size_t end_ = 0;                   // end of all gradients
};

}  // namespace tandem::models
