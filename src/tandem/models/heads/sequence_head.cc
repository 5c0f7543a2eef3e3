#include "tandem/models/heads/sequence_head.h"

#include <string>

#include "tandem/core/profile.h"
#include "tandem/kernels/activation.h"
#include "tandem/kernels/first_rows.h"
#include "tandem/models/heads/prediction_head.h"
#include "tandem/models/heads/score_head.h"
#include "tandem/nn/linear.h"

namespace tandem::models {
namespace {

class SequenceHead final : public Head {
 public:
  SequenceHead(std::size_t num_labels, const ModelConfig& config, nn::ParameterLayout& layout)
      : Head({.class_suffix = "ForSequenceClassification",
              .unit = HeadShape::Unit::kSequence,
              .reads = HeadShape::Reads::kFirst,
              .num_labels = num_labels,
              .memory = 3 * config.hidden_size,  // Rows
              .training_memory = config.hidden_size}),
        layer_(config.num_hidden_layers),
        hidden_size_(config.hidden_size),
        activation_(config.family->sequence_head.activation),
        input_dropout_(
            config.family->sequence_head.drops_input ? config.sequence_head_dropout_prob() : 0.0),
        dropout_(config.sequence_head_dropout_prob()) {
    const SequenceHeadParts& parts = config.family->sequence_head;
    output_ = layout.add_linear("head", std::string(parts.output), num_labels, hidden_size_);
    dense_ = layout.add_linear("pooler", std::string(parts.dense), hidden_size_, hidden_size_);
  }

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
               std::span<float> logits) const override {
    const Rows rows = rows_in(memory, pass);
    gather(pass, hidden, rows.first);
    nn::linear_forward<float>(pass, dense_, rows.first, rows.dense);
    activate(pass, rows);
    nn::linear_forward<float>(pass, output_, rows.active, logits);
  }

  void backward(const nn::Pass& pass, std::span<const float>, std::span<float> memory,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients& grads) const override {
    const Rows rows = rows_in(memory, pass);
    nn::linear_backward<float, float>(pass, output_, rows.active, grad_logits, rows.grad,
                                      /*accumulate_grad_x=*/false, grads);
    activate_backward(pass, rows);
    nn::linear_backward<float, float>(pass, dense_, rows.first, rows.grad, grad_hidden,
                                      /*accumulate_grad_x=*/false, grads);
    drop(pass, input_dropout(pass), grad_hidden);
  }

 private:
  // [sequences, H] each.
  struct Rows {
    std::span<float> first;   // what dense reads
    std::span<float> dense;   // what it gives
    std::span<float> active;  // what the output layer reads
    std::span<float> grad;    // gradient of active, then of dense; training only
  };
  Rows rows_in(std::span<float> memory, const nn::Pass& pass) const {
    const std::size_t size = pass.sequences.count() * hidden_size_;
    return {memory.first(size), memory.subspan(size, size), memory.subspan(2 * size, size),
            memory.subspan(3 * size)};
  }

  // Dropout in place: the same mask over values and over their gradient.
  void drop(const nn::Pass& pass, const kernels::Dropout& dropout, std::span<float> x) const {
    if (dropout.p == 0.0f) return;
    kernels::dropout_first_rows(pass.context, pass.sequences, hidden_size_, dropout, x.data(),
                                x.data());
  }
  kernels::Dropout input_dropout(const nn::Pass& pass) const {
    return pass.dropout.at(layer_, nn::DropoutSite::kInput, input_dropout_);
  }
  kernels::Dropout hidden_dropout(const nn::Pass& pass) const {
    return pass.dropout.at(layer_, nn::DropoutSite::kHeadHidden, dropout_);
  }

  void gather(const nn::Pass& pass, std::span<const float> hidden, std::span<float> first) const {
    const StageTimer timer(pass.context.profile, "pooler", "first rows");
    kernels::gather_first_rows<float>(pass.context, pass.sequences, hidden_size_, hidden.data(),
                                      first.data());
    drop(pass, input_dropout(pass), first);
  }
  void activate(const nn::Pass& pass, const Rows& rows) const {
    const StageTimer timer(pass.context.profile, "pooler", "activation");
    kernels::activation_forward<float>(pass.context, activation_, rows.dense.size(),
                                       rows.dense.data(), rows.active.data());
    drop(pass, hidden_dropout(pass), rows.active);
  }
  void activate_backward(const nn::Pass& pass, const Rows& rows) const {
    const StageTimer timer(pass.context.profile, "pooler", "activation backward");
    drop(pass, hidden_dropout(pass), rows.grad);
    kernels::activation_backward<float>(pass.context, activation_, rows.dense.size(),
                                        rows.dense.data(), rows.grad.data(), rows.grad.data());
  }

  std::size_t layer_;  // layer number of the dropout sites: the one behind the last
  std::size_t hidden_size_;
  kernels::Activation activation_;
  double input_dropout_;
  double dropout_;
  nn::Linear output_;
  nn::Linear dense_;
};

}  // namespace

std::unique_ptr<Head> make_sequence_head(std::size_t num_labels, const ModelConfig& config,
                                         nn::ParameterLayout& layout) {
  if (has_score_head(config)) return make_score_head(num_labels, config, layout);
  if (has_prediction_head(config)) {
    const bool first = config.classifier_pooling == ClassifierPooling::kCls;
    return make_prediction_head("ForSequenceClassification",
                                first ? PredictionInput::kFirstRows : PredictionInput::kMeans,
                                num_labels, config, layout);
  }
  return std::make_unique<SequenceHead>(num_labels, config, layout);
}

}  // namespace tandem::models
