// Names of parameters that files have and transformers has today. Internal to pretrained.
#pragma once

#include <string>
#include <string_view>

#include "tandem/models/encoder/family.h"

namespace tandem::models {

// Old checkpoints, converted from TensorFlow, call the parameters of LayerNorm gamma and beta.
std::string modern_name(std::string_view name);

// The parameter that a tensor is under its other name: the bias of an output layer, as files have
// it that lack the first one. Empty for other tensors.
std::string_view output_bias_alias(const Family& family, std::string_view tensor);

}  // namespace tandem::models
