// The values that a parameter begins with. Internal to pretrained.
#pragma once

#include <span>

#include "tandem/models/encoder/model_config.h"
#include "tandem/models/pretrained/torch_random.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::models {

// Weights and embeddings ~ N(0, initializer_range), or truncated normals where the family has a
// deviation for each; biases 0, LayerNorm 1 and 0, padding rows 0.
void draw_initial_values(const ModelConfig& config, const nn::ParameterSpec& parameter,
                         std::span<float> values, TorchGenerator& generator);

}  // namespace tandem::models
