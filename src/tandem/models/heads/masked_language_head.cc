#include "tandem/models/heads/masked_language_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/kernels/activation.h"
#include "tandem/models/heads/hidden_states_head.h"
#include "tandem/nn/linear.h"

namespace tandem::models {
namespace {

const MaskedLanguageHeadParts& masked_parts_of(const ModelConfig& config) {
  const MaskedLanguageHeadParts& parts = config.family->masked_language_head;
  if (parts.dense.empty()) {
    raise<ConfigError>("model_type {} has no head for masked language modelling",
                       config.family->model_type);
  }
  return parts;
}

// Output width of the layer before the output layer: the width of the embeddings.
std::size_t width_of(const ModelConfig& config) { return config.embedding_width(); }

void add_output(const ModelConfig& config, bool with_bias, nn::ParameterLayout& layout) {
  const MaskedLanguageHeadParts& parts = masked_parts_of(config);
  if (!config.tie_word_embeddings) {
    layout.add(std::string(parts.output) + ".weight", {config.vocab_size, width_of(config)},
               nn::ParameterKind::kWeight);
  }
  if (with_bias) layout.add(std::string(parts.bias), {config.vocab_size}, nn::ParameterKind::kBias);
}

// The reverse of the order in which the class of transformers defines them.
void add_masked_parameters(const ModelConfig& config, nn::ParameterLayout& layout) {
  const MaskedLanguageHeadParts& parts = masked_parts_of(config);
  const nn::Bias bias = config.family->bias;
  const auto add_norm = [&] {
    layout.add_layer_norm(std::string(parts.norm), width_of(config), bias);
  };
  add_output(config, !parts.bias_first, layout);
  if (!parts.norm_before_dense) add_norm();
  layout.add_linear("transform", std::string(parts.dense), width_of(config), config.hidden_size,
                    bias, nn::Adaptable::kNo);
  if (parts.norm_before_dense) add_norm();
  if (parts.bias_first)
    layout.add(std::string(parts.bias), {config.vocab_size}, nn::ParameterKind::kBias);
}

// The offset of a bias, which layers of some families do not have.
std::size_t bias_of(const nn::ParameterLayout& layout, const std::string& module) {
  const nn::ParameterSpec* const found = layout.find(module + ".bias");
  return found == nullptr ? nn::kNoParameter : found->offset;
}

std::string masked_output_matrix(const ModelConfig& config) {
  return config.tie_word_embeddings ? word_embeddings_name(*config.family)
                                    : fmt::format("{}.weight", masked_parts_of(config).output);
}

}  // namespace

std::unique_ptr<Head> make_masked_language_head(const ModelConfig& config,
                                                nn::ParameterLayout& layout) {
  add_masked_parameters(config, layout);
  return std::make_unique<HiddenStatesHead>("ForMaskedLM", config);
}

MaskedLanguageHead::MaskedLanguageHead(const ModelConfig& config, const nn::ParameterLayout& layout)
    : hidden_size_(config.hidden_size),
      width_(width_of(config)),
      vocabulary_(config.vocab_size),
      activation_(masked_parts_of(config).activation.value_or(
          config.family->prediction_head.dense.empty() ? config.hidden_act
                                                       : config.classifier_activation)),
      layer_norm_eps_(masked_parts_of(config).layer_norm_eps.value_or(config.layer_norm_eps)),
      output_{offset_of(layout, masked_output_matrix(config)),
              offset_of(layout, std::string(masked_parts_of(config).bias))},
      trains_output_(output_.weight < layout.trained_size()) {
  const std::string dense(masked_parts_of(config).dense);
  const std::string norm(masked_parts_of(config).norm);
  dense_ = {.weight = offset_of(layout, dense + ".weight"),
            .bias = bias_of(layout, dense),
            .out_features = width_,
            .in_features = hidden_size_,
            .name = "transform"};
  norm_ = {offset_of(layout, norm + ".weight"), bias_of(layout, norm)};
}

void MaskedLanguageHead::plan(Arena& arena, std::size_t rows, Rows& planned) const {
  planned.chosen = arena.allocate<float>(rows * hidden_size_);
  planned.dense = arena.allocate<float>(rows * width_);
  planned.active = arena.allocate<float>(rows * width_);
  planned.normed = arena.allocate<float>(rows * width_);
  planned.norm = nn::LayerNormActivations::allocate(arena, rows, width_);
  if (!training_) return;
  planned.grad = arena.allocate<float>(rows * width_);
  planned.grad_chosen = arena.allocate<float>(rows * hidden_size_);
}

std::size_t MaskedLanguageHead::reserve(std::size_t rows, nn::Precision precision, PassKind kind) {
  training_ = training_ || is_training(kind);
  Arena measure;
  plan(measure, rows, pass_.at);
  if (arena_.capacity() < measure.used()) arena_ = Arena(measure.used());
  const std::size_t kept_bytes = kind == PassKind::kTraining ? nn::VocabularyLoss::kKeptBytes : 0;
  return measure.used() +
         loss_.reserve(rows, vocabulary_, width_, precision, training_, kept_bytes);
}

nn::Pass MaskedLanguageHead::pass_of(const kernels::Context& context,
                                     const nn::Weights& weights) const {
  return {context,
          weights,
          {.row_begin = pass_.row_begin, .key_count = pass_.key_count, .sample = {}},
          {}};
}

nn::VocabularyLayer MaskedLanguageHead::layer_of(const nn::Weights& weights) const {
  return {.rows = pass_.rows.size(),
          .vocabulary = vocabulary_,
          .width = width_,
          .x = pass_.at.normed.data(),
          .weight = weights.vector(output_.weight),
          .bias = weights.vector(output_.bias),
          .targets = pass_.targets};
}

double MaskedLanguageHead::forward(const kernels::Context& context, const nn::Weights& weights,
                                   std::span<const float> hidden,
                                   std::span<const std::uint32_t> rows,
                                   std::span<const std::int32_t> targets) {
  Arena measure;
  plan(measure, rows.size(), pass_.at);
  if (arena_.capacity() < measure.used()) arena_ = Arena(measure.used());
  arena_.reset();
  plan(arena_, rows.size(), pass_.at);
  pass_.rows = rows;
  pass_.targets = targets;
  pass_.row_begin[1] = pass_.key_count[0] = static_cast<std::uint32_t>(rows.size());
  if (!rows.empty()) {
    const Rows& at = pass_.at;
    const nn::Pass pass = pass_of(context, weights);
    {
      const StageTimer timer(context.profile, "transform", "gather");
      gather_rows(context, hidden, rows, hidden_size_, at.chosen);
    }
    nn::linear_forward<float>(pass, dense_, at.chosen, at.dense);
    kernels::activation_forward<float>(context, activation_, at.dense.size(), at.dense.data(),
                                       at.active.data());
    nn::dropout_add_layer_norm_forward<float>(pass, norm_, layer_norm_eps_, {}, at.active, {},
                                              at.norm, {at.normed, at.normed});
  }
  return loss_.forward(context, layer_of(weights), weights.precision());
}

namespace {

void clear(const nn::Gradients& grads, std::size_t offset, std::size_t size) {
  if (float* const values = grads.at(offset)) std::fill_n(values, size, 0.0f);
}

}  // namespace

void MaskedLanguageHead::backward(const kernels::Context& context, const nn::Weights& weights,
                                  double scale, std::span<float> grad_hidden,
                                  const nn::Gradients& grads) {
  TANDEM_CHECK(training_, "reserve() for training comes first");
  const Rows& at = pass_.at;
  loss_.backward(context, layer_of(weights), weights.precision(), scale,
                 {.x = at.grad.data(),
                  .weight = grads.at(output_.weight),
                  .bias = grads.at(output_.bias),
                  .accumulate = grads.accumulate});
  if (pass_.rows.empty()) {
    std::fill(grad_hidden.begin(), grad_hidden.end(), 0.0f);
    if (grads.accumulate) return;
    clear(grads, norm_.weight, width_);
    clear(grads, norm_.bias, width_);
    clear(grads, dense_.weight, width_ * hidden_size_);
    clear(grads, dense_.bias, width_);
    return;
  }
  const nn::Pass pass = pass_of(context, weights);
  nn::dropout_add_layer_norm_backward<float>(pass, norm_, {}, at.norm, at.grad, {}, grads);
  kernels::activation_backward<float>(context, activation_, at.dense.size(), at.dense.data(),
                                      at.grad.data(), at.grad.data());
  nn::linear_backward<float, float>(pass, dense_, at.chosen, at.grad, at.grad_chosen,
                                    /*accumulate_grad_x=*/false, grads);
  spread_rows(at.grad_chosen, pass_.rows, hidden_size_, grad_hidden);
}

void MaskedLanguageHead::count_products(std::size_t rows, Layer::AddProducts add) const {
  add("transform", static_cast<double>(width_ * hidden_size_ * rows));
  add("output layer", static_cast<double>(width_ * vocabulary_ * rows));
}

double MaskedLanguageHead::training_flops(std::size_t rows) const {
  double multiply_adds = 0;
  count_products(rows, [&](std::string_view stage, double number) {
    multiply_adds += (stage == "transform" || trains_output_ ? 3 : 2) * number;
  });
  return 2 * multiply_adds;
}

}  // namespace tandem::models
