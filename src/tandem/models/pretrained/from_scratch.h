// A new model: what transformers' AutoModelForMaskedLM.from_config() draws after set_seed(seed).
#pragma once

#include <cstdint>
#include <span>

#include "tandem/models/encoder/model_config.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::models {

// Fills the weights of a model with make_masked_language_head() as transformers 4 does, to 1e-8.
// The class makes the encoder, draws its parameters a second time, and continues with the head in
// the same way; every module draws when it is made, the output matrix also where it is tied.
void initialize_from_scratch(const ModelConfig& config, const nn::ParameterLayout& layout,
                             std::span<float> weights, std::uint64_t seed);

}  // namespace tandem::models
