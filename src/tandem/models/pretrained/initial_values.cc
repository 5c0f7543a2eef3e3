#include "tandem/models/pretrained/initial_values.h"

#include <algorithm>
#include <cmath>

namespace tandem::models {
namespace {

// "Attention Is All You Need", section 3.5: row p is sin and cos of p / 10000^(2i/H), interleaved.
void fill_sinusoidal_positions(std::span<float> table, std::size_t hidden_size) {
  for (std::size_t element = 0; element < table.size(); ++element) {
    const std::size_t position = element / hidden_size;
    const std::size_t column = element % hidden_size;
    const double exponent =
        2.0 * static_cast<double>(column / 2) / static_cast<double>(hidden_size);
    const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
    table[element] = static_cast<float>(column % 2 == 0 ? std::sin(angle) : std::cos(angle));
  }
}

// Whether row pad_token_id of this table is the padding's: 0, and without a gradient.
bool has_padding_row(const ModelConfig& config, const nn::ParameterSpec& parameter) {
  if (config.family->truncated_deviation != nullptr) return false;  // drawn as any other row
  return config.pad_token_id >= 0 && (parameter.name == word_embeddings_name(*config.family) ||
                                      (config.family->positions == nn::Positions::kTokens &&
                                       parameter.name.ends_with("position_embeddings.weight")));
}

static_assert(kMinInitializerCutoff == TorchGenerator::kMinCutoff);

}  // namespace

void draw_initial_values(const ModelConfig& config, const nn::ParameterSpec& parameter,
                         std::span<float> values, TorchGenerator& generator) {
  const auto fill_normal = [&] {
    const auto deviation = config.family->truncated_deviation;
    if (deviation == nullptr) return generator.fill_normal(values, 0.0, config.initializer_range);
    generator.fill_truncated_normal(values, deviation(config, parameter),
                                    config.initializer_cutoff_factor);
  };
  switch (parameter.kind) {
    case nn::ParameterKind::kBias:
      // One of attention scores is a table.
      if (parameter.shape.size() == 2) return fill_normal();
      return std::fill(values.begin(), values.end(), 0.0f);
    case nn::ParameterKind::kLayerNormWeight:
      return std::fill(values.begin(), values.end(), 1.0f);
    case nn::ParameterKind::kWeight:
      fill_normal();
      if (const auto second = config.family->second_deviation; second != nullptr) {
        if (const double deviation = second(config, parameter); deviation > 0)
          generator.fill_normal(values, 0.0, deviation);
      }
      return;
    case nn::ParameterKind::kLowRankDown:  // adapter_files.h
    case nn::ParameterKind::kLowRankUp:
      return std::fill(values.begin(), values.end(), 0.0f);
    case nn::ParameterKind::kEmbedding:
      break;
  }
  if (config.sinusoidal_pos_embds && parameter.name.ends_with("position_embeddings.weight"))
    return fill_sinusoidal_positions(values, config.hidden_size);
  fill_normal();
  if (has_padding_row(config, parameter)) {
    const std::size_t width = parameter.shape[1];
    const std::span<float> padding_row =
        values.subspan(static_cast<std::size_t>(config.pad_token_id) * width, width);
    std::fill(padding_row.begin(), padding_row.end(), 0.0f);
  }
}

}  // namespace tandem::models
