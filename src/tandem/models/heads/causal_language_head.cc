#include "tandem/models/heads/causal_language_head.h"

#include <algorithm>
#include <string>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/heads/hidden_states_head.h"

namespace tandem::models {
namespace {

const CausalLanguageHeadParts& causal_parts_of(const ModelConfig& config) {
  const CausalLanguageHeadParts& parts = config.family->causal_language_head;
  if (parts.output.empty()) {
    raise<ConfigError>("model_type {} has no head for causal language modelling",
                       config.family->model_type);
  }
  return parts;
}

}  // namespace

std::string output_matrix_name(const ModelConfig& config) {
  const CausalLanguageHeadParts& parts = causal_parts_of(config);
  return config.tie_word_embeddings ? word_embeddings_name(*config.family)
                                    : std::string(parts.output) + ".weight";
}

void add_output_matrix(const ModelConfig& config, nn::ParameterLayout& layout) {
  if (config.tie_word_embeddings) return;
  layout.add(output_matrix_name(config), {config.vocab_size, config.hidden_size},
             nn::ParameterKind::kWeight);
}

std::unique_ptr<Head> make_causal_language_head(const ModelConfig& config,
                                                nn::ParameterLayout& layout) {
  auto head =
      std::make_unique<HiddenStatesHead>(std::string(causal_parts_of(config).class_suffix), config);
  add_output_matrix(config, layout);
  return head;
}

std::size_t causal_output_matrix(const ModelConfig& config, const nn::ParameterLayout& layout) {
  return offset_of(layout, output_matrix_name(config));
}

CausalLanguageHead::CausalLanguageHead(const ModelConfig& config, const nn::ParameterLayout& layout)
    : hidden_size_(config.hidden_size),
      vocabulary_(config.vocab_size),
      output_(causal_output_matrix(config, layout)),
      trains_output_(output_ < layout.trained_size()) {}

CausalLanguageHead::Rows CausalLanguageHead::plan(Arena& arena, std::size_t rows) const {
  Rows planned;
  planned.chosen = arena.allocate<float>(rows * hidden_size_);
  if (training_) planned.grad_chosen = arena.allocate<float>(rows * hidden_size_);
  return planned;
}

std::size_t CausalLanguageHead::reserve(std::size_t rows, nn::Precision precision, PassKind kind) {
  training_ = training_ || is_training(kind);
  Arena measure;
  plan(measure, rows);
  if (arena_.capacity() < measure.used()) arena_ = Arena(measure.used());
  const std::size_t kept_bytes = kind == PassKind::kTraining ? nn::VocabularyLoss::kKeptBytes : 0;
  return measure.used() +
         loss_.reserve(rows, vocabulary_, hidden_size_, precision, training_, kept_bytes);
}

nn::VocabularyLayer CausalLanguageHead::layer_of(const nn::Weights& weights) const {
  return {.rows = pass_.rows.size(),
          .vocabulary = vocabulary_,
          .width = hidden_size_,
          .x = pass_.at.chosen.data(),
          .weight = weights.vector(output_),
          .bias = nullptr,
          .targets = pass_.targets};
}

double CausalLanguageHead::forward(const kernels::Context& context, const nn::Weights& weights,
                                   std::span<const float> hidden,
                                   std::span<const std::uint32_t> rows,
                                   std::span<const std::int32_t> targets) {
  Arena measure;
  plan(measure, rows.size());
  if (arena_.capacity() < measure.used()) arena_ = Arena(measure.used());
  arena_.reset();
  pass_ = {.at = plan(arena_, rows.size()), .rows = rows, .targets = targets};
  {
    const StageTimer timer(context.profile, "output layer", "gather");
    gather_rows(context, hidden, rows, hidden_size_, pass_.at.chosen);
  }
  return loss_.forward(context, layer_of(weights), weights.precision());
}

void CausalLanguageHead::backward(const kernels::Context& context, const nn::Weights& weights,
                                  double scale, std::span<float> grad_hidden,
                                  const nn::Gradients& grads) {
  TANDEM_CHECK(training_, "reserve() for training comes first");
  loss_.backward(context, layer_of(weights), weights.precision(), scale,
                 {.x = pass_.at.grad_chosen.data(),
                  .weight = grads.at(output_),
                  .bias = nullptr,
                  .accumulate = grads.accumulate});
  spread_rows(pass_.at.grad_chosen, pass_.rows, hidden_size_, grad_hidden);
}

void CausalLanguageHead::count_products(std::size_t rows, Layer::AddProducts add) const {
  add("output layer", static_cast<double>(hidden_size_ * vocabulary_ * rows));
}

double CausalLanguageHead::training_flops(std::size_t rows) const {
  double multiply_adds = 0;
  count_products(rows, [&](std::string_view, double number) {
    multiply_adds += (trains_output_ ? 3 : 2) * number;
  });
  return 2 * multiply_adds;
}

}  // namespace tandem::models
