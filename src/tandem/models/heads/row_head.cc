#include "tandem/models/heads/row_head.h"

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/kernels/dropout.h"
#include "tandem/models/heads/prediction_head.h"
#include "tandem/models/heads/score_head.h"
#include "tandem/nn/linear.h"

namespace tandem::models {
namespace {

class RowHead final : public Head {
 public:
  RowHead(const RowHeadOptions& options, const ModelConfig& config, nn::ParameterLayout& layout)
      : Head({.class_suffix = options.class_suffix,
              .unit = HeadShape::Unit::kRow,
              .num_labels = options.num_labels,
              .memory = 0,
              // The linear layer's input, where it is not the hidden states themselves.
              .training_memory = options.dropout > 0 ? config.hidden_size : 0}),
        dropout_(options.dropout),
        layer_(config.num_hidden_layers),
        linear_(layout.add_linear("head", options.name, options.num_labels, config.hidden_size)) {}

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
               std::span<float> logits) const override {
    if (!memory.empty()) drop(pass, hidden, memory);
    nn::linear_forward<float>(pass, linear_, input(hidden, memory), logits);
  }

  void backward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients& grads) const override {
    nn::linear_backward<float, float>(pass, linear_, input(hidden, memory), grad_logits,
                                      grad_hidden, /*accumulate_grad_x=*/false, grads);
    if (!memory.empty()) drop(pass, grad_hidden, grad_hidden);
  }

 private:
  static std::span<const float> input(std::span<const float> hidden, std::span<float> memory) {
    return memory.empty() ? hidden : memory;
  }
  // The same mask over the input and over its gradient.
  void drop(const nn::Pass& pass, std::span<const float> x, std::span<float> y) const {
    const StageTimer timer(pass.context.profile, "head", "dropout");
    kernels::dropout_forward<float>(pass.context, pass.sequences, linear_.in_features,
                                    pass.dropout.at(layer_, nn::DropoutSite::kInput, dropout_),
                                    x.data(), y.data());
  }

  double dropout_;
  std::size_t layer_;  // the dropout's place: the input of the layer behind the last
  nn::Linear linear_;
};

}  // namespace

std::unique_ptr<Head> make_row_head(const RowHeadOptions& options, const ModelConfig& config,
                                    nn::ParameterLayout& layout) {
  if (has_prediction_head(config)) {
    return make_prediction_head(options.class_suffix, PredictionInput::kRows, options.num_labels,
                                config, layout);
  }
  return std::make_unique<RowHead>(options, config, layout);
}

std::unique_ptr<Head> make_token_head(std::size_t num_labels, const ModelConfig& config,
                                      nn::ParameterLayout& layout) {
  if (has_score_head(config)) {
    raise<ConfigError>("model_type {} has no head for labels of words; expected an encoder",
                       config.family->model_type);
  }
  return make_row_head({.class_suffix = "ForTokenClassification",
                        .name = "classifier",
                        .num_labels = num_labels,
                        .dropout = config.token_head_dropout_prob()},
                       config, layout);
}

}  // namespace tandem::models
