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
#include "tandem/quant/quantization_config.h"

namespace tandem::quant {

struct LoadedModel {
  models::LoadReport report;            // report on the f32 weights, if they were requested
  std::optional<nn::Int8Linears> int8;  // nothing: config.json has no quantization
};

// The weight files of a directory with this configuration. All readers of models decide here
// whether a model is quantized.
class ModelFiles {
 public:
  // Throws the errors of quantization_of().
  ModelFiles(std::filesystem::path directory, const models::ModelConfig& config);

  const std::filesystem::path& directory() const { return directory_; }
  bool is_int8() const { return quantization_.has_value(); }
  // `config` is the constructor's, or equal. `weights` is the arena to fill, or empty when another
  // rank of the node fills it; the int8 layers are each process's own. Throws the errors of
  // models::load_pretrained() and load_linears().
  LoadedModel load(const models::ModelConfig& config, const nn::ParameterLayout& layout,
                   const kernels::Context& context, std::span<float> weights,
                   const models::LoadOptions& options) const;

 private:
  std::filesystem::path directory_;
  std::optional<QuantizationConfig> quantization_;
};

}  // namespace tandem::quant
