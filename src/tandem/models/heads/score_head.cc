#include "tandem/models/heads/score_head.h"

#include <algorithm>
#include <string>

#include "tandem/core/json.h"
#include "tandem/models/heads/pooling_head.h"
#include "tandem/nn/linear.h"

namespace tandem::models {
namespace {

constexpr const char* kPadding = "pad_token_id";

class ScoreHead final : public Head {
 public:
  ScoreHead(std::size_t num_labels, const ModelConfig& config, nn::ParameterLayout& layout)
      : Head({.class_suffix = "ForSequenceClassification",
              .unit = HeadShape::Unit::kSequence,
              .reads = HeadShape::Reads::kLast,
              .num_labels = num_labels,
              .memory = config.hidden_size,  // the last rows
              .training_memory = config.hidden_size}),
        last_rows_(
            make_pooling_head({Pooling::kLastToken}, /*include_prompt=*/true, config, layout)),
        output_(layout.add_linear("head", std::string(config.family->score_head.output), num_labels,
                                  config.hidden_size, nn::Bias::kNo)) {}

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
               std::span<float> logits) const override {
    const std::span<float> rows = memory.first(size(pass));
    last_rows_->forward(pass, hidden, {}, rows);
    nn::linear_forward<float>(pass, output_, rows, logits);
  }

  void backward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients& grads) const override {
    const std::span<float> grad_rows = memory.subspan(size(pass));
    nn::linear_backward<float, float>(pass, output_, memory.first(size(pass)), grad_logits,
                                      grad_rows, /*accumulate_grad_x=*/false, grads);
    last_rows_->backward(pass, hidden, {}, grad_rows, grad_hidden, grads);
  }

 private:
  std::size_t size(const nn::Pass& pass) const {
    return pass.sequences.count() * output_.in_features;
  }

  std::unique_ptr<Head> last_rows_;
  nn::Linear output_;
};

bool reads_padding_token(const Family& family) {
  return std::ranges::any_of(family.keys, [](const ConfigKey& key) {
    const auto* const field = std::get_if<std::int32_t ModelConfig::*>(&key.field);
    return field != nullptr && *field == &ModelConfig::pad_token_id;
  });
}

}  // namespace

std::unique_ptr<Head> make_score_head(std::size_t num_labels, const ModelConfig& config,
                                      nn::ParameterLayout& layout) {
  return std::make_unique<ScoreHead>(num_labels, config, layout);
}

std::optional<std::int32_t> padding_token(const ModelConfig& config) {
  const auto json = nlohmann::json::parse(config.source);
  const auto found = json.find(kPadding);
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int32_t>();
}

std::int32_t ignored_end(const ModelConfig& config) {
  return has_score_head(config) ? padding_token(config).value_or(-1) : -1;
}

void set_padding_token(ModelConfig& config, std::int32_t token) {
  auto json = nlohmann::ordered_json::parse(config.source);
  json[kPadding] = token;
  config.source = json.dump();
  if (reads_padding_token(*config.family)) config.pad_token_id = token;
}

}  // namespace tandem::models
