// Any model directory: f32 weights, or int8 layers and the rest in f32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "tandem/kernels/context.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/nn/int8_linear.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::quant {

struct LoadedModel {
  models::LoadReport report;            // of the f32 weights, if they were asked for
  std::optional<nn::Int8Linears> int8;  // nothing: config.json has no quantization
};

// `weights` is the arena to fill, or empty when another rank of the node fills it; the int8 layers
// are each process's own. Throws what models::load_pretrained(), quantization_of() and
// load_linears() throw.
LoadedModel load_model(const std::filesystem::path& directory, const models::ModelConfig& config,
                       const nn::ParameterLayout& layout, const kernels::Context& context,
                       std::span<float> weights, const models::LoadOptions& options);

}  // namespace tandem::quant
