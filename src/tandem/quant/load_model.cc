#include "tandem/quant/load_model.h"

#include <utility>

#include "tandem/quant/int8_files.h"

namespace tandem::quant {

ModelFiles::ModelFiles(std::filesystem::path directory, const models::ModelConfig& config)
    : directory_(std::move(directory)),
      quantization_(quantization_of(config, (directory_ / "config.json").string())) {}

LoadedModel ModelFiles::load(const models::ModelConfig& config, const nn::ParameterLayout& layout,
                             const kernels::Context& context, std::span<float> weights,
                             const models::LoadOptions& options) const {
  LoadedModel model;
  if (!quantization_) {
    if (!weights.empty())
      model.report = models::load_pretrained(directory_, config, layout, weights, options);
    return model;
  }
  const std::vector<QuantizedLinear> linears =
      load_linears(directory_, config, *quantization_, layout);
  if (!weights.empty())
    model.report = load_other_weights(directory_, config, layout, linears, weights, options);
  model.int8 = pack(context, linears);
  return model;
}

}  // namespace tandem::quant
