#include "tandem/models/question_answering_model.h"

#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/kernels/dropout.h"
#include "tandem/nn/linear.h"

namespace tandem::models {
namespace {

ModelConfig validated(ModelConfig config) {
  config.validate("model configuration");
  return config;
}

// The head's parameters come first in the layout, for its gradients are final first.
nn::LinearParameters add_qa_outputs(nn::ParameterLayout& layout, std::size_t hidden_size) {
  constexpr std::size_t kNumLabels = QuestionAnsweringModel::kNumLabels;
  const std::size_t weight =
      layout.add("qa_outputs.weight", {kNumLabels, hidden_size}, nn::ParameterKind::kWeight);
  const std::size_t bias = layout.add("qa_outputs.bias", {kNumLabels}, nn::ParameterKind::kBias);
  return {weight, bias};
}

}  // namespace

double training_flops(const ModelConfig& config, double rows, double query_key_pairs) {
  const auto hidden = static_cast<double>(config.hidden_size);
  const auto layers = static_cast<double>(config.num_hidden_layers);
  const double linear_weights =
      layers * (4 * hidden * hidden + 2 * hidden * static_cast<double>(config.intermediate_size)) +
      QuestionAnsweringModel::kNumLabels * hidden;
  return 3 * (2 * linear_weights * rows + 4 * hidden * layers * query_key_pairs);
}

double training_flops(const ModelConfig& config, const nn::PackedBatch& batch) {
  double query_key_pairs = 0;
  for (std::size_t i = 0; i < batch.num_sequences(); ++i) {
    query_key_pairs +=
        static_cast<double>(batch.row_begin[i + 1] - batch.row_begin[i]) * batch.key_count[i];
  }
  return training_flops(config, static_cast<double>(batch.rows()), query_key_pairs);
}

QuestionAnsweringModel::QuestionAnsweringModel(ModelConfig config)
    : config_(validated(std::move(config))),
      qa_outputs_(add_qa_outputs(layout_, config_.hidden_size)),
      head_end_(layout_.size()),
      encoder_(config_, layout_) {}

kernels::Dropout QuestionAnsweringModel::head_dropout(const nn::Pass& pass) const {
  return pass.dropout.at(config_.num_hidden_layers, nn::DropoutPlace::kInput, config_.qa_dropout);
}

template <class T>
void QuestionAnsweringModel::plan(Arena& arena, std::size_t rows, PassKind kind,
                                  Tensors<T>& tensors) const {
  encoder_.plan<T>(arena, rows, kind, tensors.encoder);
  const bool drops = is_training(kind) && config_.qa_dropout > 0;
  tensors.head_input =
      drops ? arena.allocate<float>(rows * config_.hidden_size) : tensors.encoder.output();
}

Activations QuestionAnsweringModel::make_activations(const BatchShape& capacity,
                                                     nn::Precision precision, PassKind kind,
                                                     const Activations* within) const {
  Activations activations;
  if (within != nullptr) activations.memory_ = within->memory_;
  activations.capacity_ = capacity;
  activations.kind_ = kind;
  if (precision == nn::Precision::kBfloat16) activations.tensors_.emplace<Tensors<bfloat16>>();
  std::visit(
      [&](auto& tensors) {
        Arena measure;
        plan(measure, capacity.rows, kind, tensors);
        Activations::Memory& memory = *activations.memory_;
        ++memory.passes;  // whatever lay in it is given up
        if (memory.arena.capacity() < measure.used()) memory.arena = Arena(measure.used());
        memory.arena.reset();
        plan(memory.arena, capacity.rows, kind, tensors);
      },
      activations.tensors_);
  return activations;
}

void QuestionAnsweringModel::check_pass(const nn::Weights& weights, const nn::PackedBatch& batch,
                                        const Activations& activations,
                                        std::size_t logits_size) const {
  const std::size_t rows = batch.rows();
  if (rows == 0 || rows > activations.capacity().rows ||
      batch.num_sequences() > activations.capacity().sequences) {
    raise<InvalidArgument>(
        "the batch has {} rows in {} sequences; expected 1 to {} rows in at most {}", rows,
        batch.num_sequences(), activations.capacity().rows, activations.capacity().sequences);
  }
  if (batch.row_begin.back() != rows || batch.position_ids.size() != rows ||
      batch.token_type_ids.size() != rows) {
    raise<InvalidArgument>(
        "the batch has {} input ids, {} position ids, {} token types, and sequences of {} rows in "
        "all; expected equal numbers",
        rows, batch.position_ids.size(), batch.token_type_ids.size(), batch.row_begin.back());
  }
  if (weights.f32.size() != layout_.size() ||
      (!weights.bf16.empty() && weights.bf16.size() != layout_.bf16_size())) {
    raise<InvalidArgument>(
        "the weights have {} f32 and {} bf16 elements; expected {} and {} (or none)",
        weights.f32.size(), weights.bf16.size(), layout_.size(), layout_.bf16_size());
  }
  if ((weights.int8 != nullptr || weights.observer != nullptr) && !weights.bf16.empty()) {
    raise<InvalidArgument>(
        "int8 layers and observers of linear layers need f32; found bf16 weights");
  }
  if (weights.precision() != activations.precision()) {
    raise<InvalidArgument>("the activations were made for another precision than the weights have");
  }
  if (logits_size != rows * kNumLabels) {
    raise<InvalidArgument>("room for {} logits; expected {} rows × {}", logits_size, rows,
                           kNumLabels);
  }
}

template <class T>
void QuestionAnsweringModel::forward_head(const nn::Pass& pass, const Tensors<T>& tensors,
                                          std::span<float> logits) const {
  const std::size_t H = config_.hidden_size;
  const std::span<float> output = tensors.encoder.output();
  if (tensors.head_input.data() != output.data()) {
    const StageTimer timer(pass.context.profile, "head", "dropout");
    kernels::dropout_forward<float>(pass.context, pass.sequences, H, head_dropout(pass),
                                    output.data(), tensors.head_input.data());
  }
  nn::linear_forward<float>(pass, "head", qa_outputs_, kNumLabels, H, tensors.head_input, logits);
}

template <class T>
void QuestionAnsweringModel::backward_head(const nn::Pass& pass, const Tensors<T>& tensors,
                                           std::span<const float> grad_logits,
                                           const nn::Gradients& grads) const {
  const std::size_t H = config_.hidden_size;
  const std::span<float> grad = tensors.encoder.grad;
  nn::linear_backward<float, float>(pass, "head", qa_outputs_, kNumLabels, H, tensors.head_input,
                                    grad_logits, grad, /*accumulate_grad_x=*/false, grads);
  if (tensors.head_input.data() != tensors.encoder.output().data()) {
    const StageTimer timer(pass.context.profile, "head", "dropout");
    kernels::dropout_forward<float>(pass.context, pass.sequences, H, head_dropout(pass),
                                    grad.data(), grad.data());
  }
}

void QuestionAnsweringModel::forward(const kernels::Context& context, const nn::Weights& weights,
                                     const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
                                     Activations& activations, std::span<float> logits) const {
  check_pass(weights, batch, activations, logits.size());
  const nn::Pass pass{context, weights, batch.sequences(), dropout};
  std::visit(
      [&](auto& tensors) {
        Activations::Memory& memory = *activations.memory_;
        activations.pass_ = ++memory.passes;
        memory.arena.reset();
        plan(memory.arena, batch.rows(), activations.kind(), tensors);
        encoder_.forward(pass, batch, tensors.encoder);
        forward_head(pass, tensors, logits);
      },
      activations.tensors_);
}

void QuestionAnsweringModel::backward(const kernels::Context& context, const nn::Weights& weights,
                                      const nn::PackedBatch& batch,
                                      const nn::DropoutStream& dropout,
                                      std::span<const float> grad_logits, Activations& activations,
                                      std::span<float> grads, bool accumulate,
                                      FunctionRef<void(std::size_t end)> gradient_ready) const {
  check_pass(weights, batch, activations, grad_logits.size());
  if (!is_training(activations.kind())) {
    raise<InvalidArgument>("backward needs activations of a training pass; found inference");
  }
  if (activations.pass_ != activations.memory_->passes) {
    raise<InvalidArgument>(
        "backward after another pass in the same memory; it must follow its own forward");
  }
  if (weights.int8 != nullptr) {
    raise<InvalidArgument>("backward through int8 layers; they are for evaluation only");
  }
  if (grads.size() != layout_.size()) {
    raise<InvalidArgument>("room for {} gradients; expected {}", grads.size(), layout_.size());
  }
  const nn::Pass pass{context, weights, batch.sequences(), dropout};
  const nn::Gradients gradients{grads, accumulate};
  std::visit(
      [&](auto& tensors) {
        backward_head(pass, tensors, grad_logits, gradients);
        gradient_ready(head_end_);
        encoder_.backward(pass, batch, tensors.encoder, gradients, gradient_ready);
      },
      activations.tensors_);
}

}  // namespace tandem::models
