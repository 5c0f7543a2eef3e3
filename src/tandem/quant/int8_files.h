// Directories of int8 models in the format of compressed-tensors (int-quantized): of every
// quantized module
//     <module>.weight            I8  [out, in]
//     <module>.weight_scale      F32 [out, 1]
//     <module>.input_scale       F32 [1]       static ranges only, as the next one
//     <module>.input_zero_point  I8  [1]       of signed inputs: the kernels' zero point − 128
// and all other parameters in f32. Query, key and value are modules of their own there and one
// product here, so they have one input range.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/models/encoder/model_config.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/quant/quantization_config.h"
#include "tandem/quant/quantized_model.h"

namespace tandem::quant {

// Writes model.safetensors and config.json into an existing directory, each atomically. `weights`
// is the arena; of the quantized layers only their biases are read. All of `linears` are static or
// all are dynamic. Equal inputs write equal bytes. Throws IoError.
void save_int8(const std::filesystem::path& directory, const models::ModelConfig& config,
               std::string_view architecture, const nn::ParameterLayout& layout,
               std::span<const float> weights, std::span<const QuantizedLinear> linears);

// The quantized layers of a directory. `quantization` is that of `config`. Throws IoError, and
// DataError for a tensor that is missing, of another type or shape, scales that are not positive
// and finite, a layer whose modules are quantized differently, and an int8 tensor that is not a
// layer's weight.
std::vector<QuantizedLinear> load_linears(const std::filesystem::path& directory,
                                          const models::ModelConfig& config,
                                          const QuantizationConfig& quantization,
                                          const nn::ParameterLayout& layout);

// models::load_pretrained() of such a directory: fills the whole arena, of quantized layers with
// value · scale (no product reads these).
models::LoadReport load_other_weights(const std::filesystem::path& directory,
                                      const models::ModelConfig& config,
                                      const nn::ParameterLayout& layout,
                                      std::span<const QuantizedLinear> linears,
                                      std::span<float> weights, const models::LoadOptions& options);

}  // namespace tandem::quant
