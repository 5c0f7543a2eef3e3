// The section "quantization_config" of a config.json, as the package compressed-tensors writes and
// reads it: format int-quantized, weights per output channel.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/models/encoder/model_config.h"

namespace tandem::quant {

struct QuantizationConfig {
  bool dynamic = false;  // ranges of inputs per row at run time, not one per layer in the file
  bool symmetric_inputs = false;  // no zero point in the file (others write this, tandem does not)
  std::vector<std::string> ignore;  // modules that stay in f32
};

// The quantization section of `config`; empty if the model is not quantized. `where` names the file
// in messages. Throws ConfigError for another method, format, number of bits or granularity, and
// for values of a wrong type.
std::optional<QuantizationConfig> quantization_of(const models::ModelConfig& config,
                                                  std::string_view where);

// config.to_json() with the section in it.
std::string config_json(const models::ModelConfig& config, std::string_view architecture,
                        const QuantizationConfig& quantization);

}  // namespace tandem::quant
