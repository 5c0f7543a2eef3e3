#include "tandem/quant/quantized_model.h"

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::quant {
namespace {

std::optional<kernels::Int8Range> range_of(const CalibratedRanges& ranges, InputRanges kind,
                                           std::size_t layer) {
  switch (kind) {
    case InputRanges::kLeastError:
      return ranges.least_error.at(layer);
    case InputRanges::kMinMax:
      return ranges.min_max.at(layer);
    case InputRanges::kDynamic:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::vector<QuantizedLinear> quantize(const std::vector<LinearLayer>& layers,
                                      std::span<const float> weights,
                                      const CalibratedRanges& ranges,
                                      const Configuration& configuration) {
  std::vector<QuantizedLinear> linears;
  const std::vector<std::string>& in_f32 = configuration.f32_blocks;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LinearLayer& layer = layers[i];
    const std::size_t rows = layer.linear.out_features;
    const std::size_t columns = layer.linear.in_features;
    if (std::find(in_f32.begin(), in_f32.end(), layer.block) != in_f32.end()) continue;
    const std::span<const float> weight = weights.subspan(layer.linear.weight, rows * columns);
    try {
      linears.push_back({.layer = layer,
                         .weight = quantize_rows(rows, columns, weight),
                         .input = range_of(ranges, configuration.ranges, i)});
    } catch (const InvalidArgument& error) {
      raise<DataError>("{} cannot be quantized: {}", layer.modules.front().name, error.what());
    }
  }
  return linears;
}

nn::Int8Linears pack(const kernels::Context& context, std::span<const QuantizedLinear> linears) {
  nn::Int8Linears packed;
  for (const QuantizedLinear& linear : linears) {
    const Int8Matrix& weight = linear.weight;
    packed.set(linear.layer.linear,
               {.weight = kernels::Int8Weight::pack(context, weight.rows, weight.columns,
                                                    weight.values, weight.scale),
                .input = linear.input});
  }
  return packed;
}

}  // namespace tandem::quant
