// An encoder with a task's head: memory, precision, the checks of a batch, forward and backward,
// for every head (head.h) and every family (family.h).
//
//   EncoderModel model(ModelConfig::load(dir), question_answering::make_span_head);
//   Buffer weights(model.layout().size() * sizeof(float));
//   load_pretrained(dir, model.config(), model.layout(), weights.as<float>(), {.seed = seed});
//   Activations activations = model.make_activations(largest_batch, nn::Precision::kFloat32,
//                                                    PassKind::kTraining);
//   model.forward(ctx, {weights.as<float>(), {}}, batch, dropout, activations, logits);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/core/thread_pool.h"
#include "tandem/models/encoder/encoder.h"
#include "tandem/models/encoder/head.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/nn/packed_batch.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::models {

// The largest batch that activations have room for.
struct BatchShape {
  std::size_t rows = 0;
  std::size_t sequences = 0;
};

// The memory of one pass at a time, allocated once for the largest batch; forward lays it out anew
// for each batch's rows and allocates nothing. Made by EncoderModel::make_activations(), in memory
// of its own or in that of others; forward then ends the pass of the others. Not thread-safe.
class Activations {
 public:
  const BatchShape& capacity() const { return capacity_; }
  PassKind kind() const { return kind_; }
  nn::Precision precision() const { return encoder_.precision(); }
  // Size of the memory, including what others share.
  std::size_t bytes() const { return memory_->arena.capacity(); }
  // Bytes that the last batch used; equals bytes() if that batch filled the capacity.
  std::size_t bytes_used() const { return memory_->arena.used(); }

  // The rows [R, H] between layers after the last forward: k = 0 the embeddings' output, k = l + 1
  // the output of layer l. T is what products read: float for kFloat32, bfloat16 for kBfloat16.
  // Every k > 0 is the last layer's output unless EncoderTensors<T>::keeps_hidden(kind()), and so
  // is k = 0 in inference. The last layer's output for a head that reads first rows has these
  // alone, [sequences, H], at the beginning.
  template <class T>
  std::span<const T> hidden_state(std::size_t k) const {
    return std::get<EncoderTensors<T>>(encoder_.tensors).hidden.at(k).operand;
  }

 private:
  friend class EncoderModel;

  struct Memory {
    Arena arena;
    std::uint64_t passes = 0;  // that began in it
  };

  BatchShape capacity_;
  PassKind kind_ = PassKind::kInference;
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::uint64_t pass_ = 0;  // memory_->passes when forward began the last one
  EncoderActivations encoder_;
  std::span<float> head_;          // Head::memory()
  std::span<std::byte> low_rank_;  // nn::Pass::low_rank_memory
  // For heads that read first rows: 0, 1, 2, … and 1, 1, 1, …, the Sequences of these rows alone.
  std::vector<std::uint32_t> first_row_begin_, first_key_count_;
};

class EncoderModel {
 public:
  // With config.lora all parameters of the base but modules_to_save are frozen. Throws ConfigError
  // (ModelConfig::validate; a LoraConfig that fits no module).
  EncoderModel(ModelConfig config, const MakeHead& make_head);

  const ModelConfig& config() const { return config_; }
  // The class of transformers, as config.json names it: "BertForQuestionAnswering".
  std::string architecture() const;
  // Head, layer L-1 … layer 0, embeddings; the adapters of a linear layer are behind it.
  const nn::ParameterLayout& layout() const { return layout_; }

  // Room for batches of up to `capacity`. precision = weights.precision() of the passes to come.
  // within: not null: these passes use its memory, which grows if they need more.
  Activations make_activations(const BatchShape& capacity, nn::Precision precision, PassKind kind,
                               const Activations* within = nullptr) const;

  // Values that the head makes of a batch.
  std::size_t num_logits(const nn::PackedBatch& batch) const {
    return num_logits(batch.rows(), batch.num_sequences());
  }
  std::size_t num_logits(std::size_t rows, std::size_t sequences) const {
    return head_->num_logits(rows, sequences);
  }

  // logits ([num_logits(batch)] f32; overwritten) = head(encoder(batch)). The encoder's products
  // are in bf16 iff weights.bf16 is not empty; the head is always f32. Activations of a training
  // kind then hold what backward needs. Throws InvalidArgument if the batch is inconsistent or
  // exceeds the capacity, the precision differs from the activations', or an id is outside its
  // table.
  void forward(const kernels::Context& context, const nn::Weights& weights,
               const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
               Activations& activations, std::span<float> logits) const;

  // Whether the logits of a sequence depend on its rows but the last one through their keys and
  // values alone, so that forward_behind() can continue a common begin.
  bool reads_last_rows_of_decoder() const;
  // Generation with a decoder: room for a text of up to `capacity` rows. Throws ConfigError for a
  // model whose layers keep nothing, or that has fewer positions.
  KeyValues make_key_values(std::size_t capacity, nn::Precision precision) const;
  // The logits of rows behind those that `past` has of each sequence: forward() of an inference
  // without dropout, the same bits as with all rows of one sequence at once. logits:
  // [num_logits(batch)]; for a head of the vocabulary the hidden states, [rows, H]. The sequences
  // have no padding. `past` then has these rows, too. Throws InvalidArgument as
  // forward(), and for a batch that exceeds the room of `past`.
  void forward_behind(const kernels::Context& context, const nn::Weights& weights,
                      const nn::PackedBatch& batch, std::span<KeyValues* const> past,
                      Activations& activations, std::span<float> logits) const;

  // grads ([layout().trained_size()] f32; overwritten, or += with `accumulate`; gaps are not
  // touched) from grad_logits [num_logits(batch)] f32. batch, weights, dropout and activations are
  // those of the last forward, whose activations are used up. gradient_ready(end) is called on this
  // thread when grads [0, end) are final, each time with a larger end: after the head, after each
  // layer from last to first, and with layout().trained_size() at the end. Throws InvalidArgument
  // for inference activations, for spans of a wrong size, and when another pass has used the memory
  // since forward.
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
                std::span<const float> grad_logits, Activations& activations,
                std::span<float> grads, bool accumulate,
                FunctionRef<void(std::size_t end)> gradient_ready) const;

  // Operations of the products of one training pass, 2 per multiply-add: of a sequence with `rows`
  // rows, `keys` of them real tokens. Backward costs twice the forward pass.
  double training_flops(std::size_t rows, std::size_t keys) const;
  // The same of the products that a pass makes once for all its sequences, of up to `longest` rows.
  double shared_training_flops(std::size_t longest) const;
  // The operations of a pass: both.
  double training_flops(const nn::PackedBatch& batch) const;
  // As Layer::count_products(), of the encoder, for a sequence.
  void count_products(std::size_t rows, std::size_t keys, Layer::AddProducts add) const;

 private:
  void plan(Arena& arena, const BatchShape& batch, Activations& activations) const;
  std::size_t low_rank_bytes(const BatchShape& batch, nn::Precision precision) const;
  double adapter_share(std::string_view stage) const;
  double products_per_forward(std::string_view stage) const;
  template <class Count>
  double products_of_layers(Count count) const;
  nn::Pass first_rows(const nn::Pass& pass, const Activations& activations) const;
  void check_pass(const nn::Weights& weights, const nn::PackedBatch& batch,
                  const Activations& activations, std::size_t logits_size) const;
  static void check_past(const nn::PackedBatch& batch, std::span<KeyValues* const> past,
                         const Activations& activations);
  void check_backward(const nn::Weights& weights, const Activations& activations,
                      std::size_t grads_size) const;

  ModelConfig config_;
  nn::ParameterLayout layout_;
  std::unique_ptr<Head> head_;
  std::size_t head_end_ = 0;      // end of the gradients of the head
  std::size_t head_linears_ = 0;  // linear layers of the head, the first in the layout
  double head_weights_ = 0;       // in the products of the head for one of its units
  Encoder encoder_;
};

}  // namespace tandem::models
