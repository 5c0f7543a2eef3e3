#include "tandem/models/heads/prediction_head.h"

#include <array>
#include <cstdint>
#include <utility>

#include "tandem/core/profile.h"
#include "tandem/kernels/activation.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/first_rows.h"
#include "tandem/models/heads/pooling_head.h"
#include "tandem/nn/layer_norm.h"
#include "tandem/nn/linear.h"

namespace tandem::models {
namespace {

HeadShape shape_of(std::string class_suffix, PredictionInput input, std::size_t num_labels,
                   std::size_t hidden_size) {
  const bool rows = input == PredictionInput::kRows;
  return {.class_suffix = std::move(class_suffix),
          .unit = rows ? HeadShape::Unit::kRow : HeadShape::Unit::kSequence,
          .reads = input == PredictionInput::kFirstRows ? HeadShape::Reads::kFirst
                                                        : HeadShape::Reads::kAll,
          .num_labels = num_labels,
          .memory = (rows ? 3 : 4) * hidden_size + 2,  // Units
          .training_memory = hidden_size};
}

// The units of a head as the rows of one sequence.
class OneSequence {
 public:
  OneSequence(const nn::Pass& pass, std::size_t rows)
      : row_begin_{0, static_cast<std::uint32_t>(rows)},
        key_count_{static_cast<std::uint32_t>(rows)},
        pass_{pass.context,
              pass.weights,
              {.row_begin = row_begin_, .key_count = key_count_, .sample = {}},
              {}} {}
  OneSequence(const OneSequence&) = delete;
  OneSequence& operator=(const OneSequence&) = delete;

  const nn::Pass& pass() const { return pass_; }

 private:
  std::array<std::uint32_t, 2> row_begin_;
  std::array<std::uint32_t, 1> key_count_;
  nn::Pass pass_;
};

class PredictionHead final : public Head {
 public:
  PredictionHead(std::string class_suffix, PredictionInput input, std::size_t num_labels,
                 const ModelConfig& config, nn::ParameterLayout& layout)
      : Head(shape_of(std::move(class_suffix), input, num_labels, config.hidden_size)),
        input_(input),
        layer_(config.num_hidden_layers),
        hidden_size_(config.hidden_size),
        activation_(config.classifier_activation),
        layer_norm_eps_(config.layer_norm_eps),
        dropout_(config.token_head_dropout_prob()) {
    const PredictionHeadParts& parts = config.family->prediction_head;
    const nn::Bias bias = config.family->bias;
    output_ = layout.add_linear("head", std::string(parts.output), num_labels, hidden_size_);
    norm_ = layout.add_layer_norm(std::string(parts.norm), hidden_size_, bias);
    dense_ =
        layout.add_linear("transform", std::string(parts.dense), hidden_size_, hidden_size_, bias);
    if (input == PredictionInput::kMeans)
      means_ = make_pooling_head({Pooling::kMean}, /*include_prompt=*/true, config, layout);
  }

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
               std::span<float> logits) const override {
    const Units units = units_in(memory, pass);
    const OneSequence rows(pass, units.mean.size());
    nn::linear_forward<float>(pass, dense_, choose(pass, hidden, units), units.dense);
    {
      const StageTimer timer(pass.context.profile, "transform", "activation");
      kernels::activation_forward<float>(pass.context, activation_, units.dense.size(),
                                         units.dense.data(), units.active.data());
    }
    nn::layer_norm_forward<float>(rows.pass(), norm_, layer_norm_eps_, norm_of(units),
                                  {units.normed, units.normed});
    drop(pass, units.normed);
    nn::linear_forward<float>(pass, output_, units.normed, logits);
  }

  void backward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients& grads) const override {
    const Units units = units_in(memory, pass);
    const OneSequence rows(pass, units.mean.size());
    nn::linear_backward<float, float>(pass, output_, units.normed, grad_logits, units.grad,
                                      /*accumulate_grad_x=*/false, grads);
    drop(pass, units.grad);
    nn::dropout_add_layer_norm_backward<float>(rows.pass(), norm_, {}, norm_of(units), units.grad,
                                               {}, grads);
    {
      const StageTimer timer(pass.context.profile, "transform", "activation backward");
      kernels::activation_backward<float>(pass.context, activation_, units.dense.size(),
                                          units.dense.data(), units.grad.data(), units.grad.data());
    }
    const std::span<float> grad_input = means_ ? units.dense : grad_hidden;
    nn::linear_backward<float, float>(pass, dense_, chosen(hidden, units), units.grad, grad_input,
                                      /*accumulate_grad_x=*/false, grads);
    if (means_) means_->backward(pass, hidden, {}, grad_input, grad_hidden, grads);
  }

 private:
  // [units, H], but mean and rstd [units].
  struct Units {
    std::span<float> dense;   // what dense gives
    std::span<float> active;  // what the norm reads
    std::span<float> normed;  // what the output layer reads
    std::span<float> mean, rstd;
    std::span<float> chosen;  // what dense reads, where that is not the rows themselves
    std::span<float> grad;    // training only
  };
  Units units_in(std::span<float> memory, const nn::Pass& pass) const {
    const std::size_t count = units(pass.rows(), pass.sequences.count());
    const auto take = [&](std::size_t size) {
      const std::span<float> part = memory.first(size);
      memory = memory.subspan(size);
      return part;
    };
    Units units;
    for (std::span<float>* matrix : {&units.dense, &units.active, &units.normed})
      *matrix = take(count * hidden_size_);
    if (input_ != PredictionInput::kRows) units.chosen = take(count * hidden_size_);
    units.mean = take(count);
    units.rstd = take(count);
    units.grad = memory;
    return units;
  }
  static nn::LayerNormActivations norm_of(const Units& units) {
    return {units.active, units.mean, units.rstd};
  }
  std::span<const float> chosen(std::span<const float> hidden, const Units& units) const {
    return input_ == PredictionInput::kRows ? hidden : units.chosen;
  }
  // The rows that the dense layer reads.
  std::span<const float> choose(const nn::Pass& pass, std::span<const float> hidden,
                                const Units& units) const {
    if (means_) {
      means_->forward(pass, hidden, {}, units.chosen);
    } else if (input_ == PredictionInput::kFirstRows) {
      const StageTimer timer(pass.context.profile, "transform", "first rows");
      kernels::gather_first_rows<float>(pass.context, pass.sequences, hidden_size_, hidden.data(),
                                        units.chosen.data());
    }
    return chosen(hidden, units);
  }

  // Dropout in place: the same mask over values and over their gradient.
  void drop(const nn::Pass& pass, std::span<float> x) const {
    const kernels::Dropout dropout =
        pass.dropout.at(layer_, nn::DropoutSite::kHeadHidden, dropout_);
    if (dropout.p == 0.0f) return;
    if (input_ == PredictionInput::kRows) {
      kernels::dropout_forward<float>(pass.context, pass.sequences, hidden_size_, dropout, x.data(),
                                      x.data());
    } else {
      kernels::dropout_first_rows(pass.context, pass.sequences, hidden_size_, dropout, x.data(),
                                  x.data());
    }
  }

  PredictionInput input_;
  std::size_t layer_;  // layer number of the dropout site: the one behind the last
  std::size_t hidden_size_;
  kernels::Activation activation_;
  double layer_norm_eps_;
  double dropout_;
  nn::Linear output_;
  nn::LayerNormParameters norm_;
  nn::Linear dense_;
  std::unique_ptr<Head> means_;
};

}  // namespace

std::unique_ptr<Head> make_prediction_head(std::string class_suffix, PredictionInput input,
                                           std::size_t num_labels, const ModelConfig& config,
                                           nn::ParameterLayout& layout) {
  return std::make_unique<PredictionHead>(std::move(class_suffix), input, num_labels, config,
                                          layout);
}

}  // namespace tandem::models
