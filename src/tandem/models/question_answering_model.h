// BERT or DistilBERT with a span head: a start logit and an end logit for every token row (Devlin
// et al. 2019, section 4.2).
//
//   QuestionAnsweringModel model(ModelConfig::load(dir));
//   Buffer weights(model.layout().size() * sizeof(float));
//   load_pretrained(dir, model.config(), model.layout(), weights.as<float>(), seed);
//   Activations activations = model.make_activations(largest_batch, nn::Precision::kFloat32,
//                                                    PassKind::kTraining);
//   model.forward(ctx, {weights.as<float>(), {}}, batch, dropout, activations, logits);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>

#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"
#include "tandem/core/thread_pool.h"
#include "tandem/models/encoder.h"
#include "tandem/models/model_config.h"
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
// for each batch's rows and allocates nothing. Made by QuestionAnsweringModel::make_activations(),
// in memory of its own or in that of others; forward then ends the pass of the others. Not
// thread-safe.
class Activations {
 public:
  const BatchShape& capacity() const { return capacity_; }
  PassKind kind() const { return kind_; }
  nn::Precision precision() const {
    return tensors_.index() == 0 ? nn::Precision::kFloat32 : nn::Precision::kBfloat16;
  }
  // Of the memory, whoever shares it.
  std::size_t bytes() const { return memory_->arena.capacity(); }
  // Of the last batch; equals bytes() when that had as many rows as there is room for.
  std::size_t bytes_used() const { return memory_->arena.used(); }

  // The rows [R, H] between layers after the last forward: k = 0 the embeddings' output, k = l + 1
  // the output of layer l. T is what products read: float for kFloat32, bfloat16 for kBfloat16.
  // Every k > 0 is the last layer's output unless EncoderActivations<T>::keeps_hidden(kind()), and
  // so is k = 0 in inference.
  template <class T>
  std::span<const T> hidden_state(std::size_t k) const {
    return std::get<Tensors<T>>(tensors_).encoder.hidden.at(k).operand;
  }

 private:
  friend class QuestionAnsweringModel;

  template <class T>
  struct Tensors {
    EncoderActivations<T> encoder;
    std::span<float> head_input;  // [R, H] the encoder's output after dropout
  };

  struct Memory {
    Arena arena;
    std::uint64_t passes = 0;  // that began in it
  };

  BatchShape capacity_;
  PassKind kind_ = PassKind::kInference;
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::uint64_t pass_ = 0;  // memory_->passes when forward began the last one
  std::variant<Tensors<float>, Tensors<bfloat16>> tensors_;
};

class QuestionAnsweringModel {
 public:
  static constexpr std::size_t kNumLabels = 2;  // start and end

  // Throws ConfigError (ModelConfig::validate).
  explicit QuestionAnsweringModel(ModelConfig config);

  const ModelConfig& config() const { return config_; }
  // Head, layer L-1 … layer 0, embeddings.
  const nn::ParameterLayout& layout() const { return layout_; }

  // Room for batches of up to `capacity`. precision = weights.precision() of the passes to come.
  // within: not null: these passes use its memory, which grows if they need more.
  Activations make_activations(const BatchShape& capacity, nn::Precision precision, PassKind kind,
                               const Activations* within = nullptr) const;

  // logits [rows, 2] f32 = qa_outputs(dropout(encoder(batch))), overwritten. The encoder's products
  // are in bf16 iff weights.bf16 is not empty; the head is always f32. Activations of a training
  // kind then hold what backward needs. Throws InvalidArgument if the batch is inconsistent or
  // exceeds the capacity, the precision differs from the activations', or an id is outside its
  // table.
  void forward(const kernels::Context& context, const nn::Weights& weights,
               const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
               Activations& activations, std::span<float> logits) const;

  // grads ([layout().size()] f32; overwritten, or += with `accumulate`; alignment gaps are not
  // touched) from grad_logits [rows, 2] f32. batch, weights, dropout and activations are those of
  // the last forward, whose activations are used up. gradient_ready(end) is called on this thread
  // when grads [0, end) are final: after the head, after each layer from last to first, and with
  // end = layout().size() after the embeddings. Throws InvalidArgument for inference activations,
  // for spans of a wrong size, and when another pass has used the memory since forward.
  void backward(const kernels::Context& context, const nn::Weights& weights,
                const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
                std::span<const float> grad_logits, Activations& activations,
                std::span<float> grads, bool accumulate,
                FunctionRef<void(std::size_t end)> gradient_ready) const;

 private:
  template <class T>
  using Tensors = Activations::Tensors<T>;

  kernels::Dropout head_dropout(const nn::Pass& pass) const;
  template <class T>
  void plan(Arena& arena, std::size_t rows, PassKind kind, Tensors<T>& tensors) const;
  template <class T>
  void forward_head(const nn::Pass& pass, const Tensors<T>& tensors, std::span<float> logits) const;
  template <class T>
  void backward_head(const nn::Pass& pass, const Tensors<T>& tensors,
                     std::span<const float> grad_logits, const nn::Gradients& grads) const;
  void check_pass(const nn::Weights& weights, const nn::PackedBatch& batch,
                  const Activations& activations, std::size_t logits_size) const;

  ModelConfig config_;
  nn::ParameterLayout layout_;
  nn::LinearParameters qa_outputs_;
  std::size_t head_end_ = 0;
  Encoder encoder_;
};

// Multiply-adds of the matrix products of one training pass, x2: per row every weight of the linear
// layers once, per query row and key the score and the weighted sum. Backward costs twice the
// forward pass.
double training_flops(const ModelConfig& config, double rows, double query_key_pairs);
double training_flops(const ModelConfig& config, const nn::PackedBatch& batch);

}  // namespace tandem::models
