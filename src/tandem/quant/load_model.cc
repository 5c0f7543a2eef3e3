#include "tandem/quant/load_model.h"

#include "tandem/quant/int8_files.h"
#include "tandem/quant/quantization_config.h"

namespace tandem::quant {

LoadedModel load_model(const std::filesystem::path& directory, const models::ModelConfig& config,
                       const nn::ParameterLayout& layout, const kernels::Context& context,
                       std::span<float> weights, const models::LoadOptions& options) {
  LoadedModel model;
  if (!quantization_of(config, (directory / "config.json").string())) {
    if (!weights.empty())
      model.report = models::load_pretrained(directory, config, layout, weights, options);
    return model;
  }
  const std::vector<QuantizedLinear> linears = load_linears(directory, config, layout);
  if (!weights.empty())
    model.report = load_other_weights(directory, config, layout, linears, weights, options);
  model.int8 = pack(context, linears);
  return model;
}

}  // namespace tandem::quant
