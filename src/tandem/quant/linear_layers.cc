#include "tandem/quant/linear_layers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::quant {
namespace {

constexpr std::string_view kWeight = ".weight";

// "bert.encoder.layer.0" of "bert.encoder.layer.0.output.dense.weight"; empty when the name has no
// number between dots.
std::string block_of(const std::string& name) {
  for (std::size_t begin = name.find('.'); begin != std::string::npos;
       begin = name.find('.', begin + 1)) {
    const std::size_t end = name.find('.', begin + 1);
    if (end == std::string::npos || end == begin + 1) continue;
    const bool number = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                                    name.begin() + static_cast<std::ptrdiff_t>(end),
                                    [](char c) { return c >= '0' && c <= '9'; });
    if (number) return name.substr(0, end);
  }
  return {};
}

std::vector<LinearModule> modules_of(const nn::ParameterLayout& layout, const nn::Linear& linear) {
  const std::size_t end = linear.weight + linear.out_features * linear.in_features;
  std::vector<LinearModule> modules;
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (parameter.offset < linear.weight || parameter.offset >= end) continue;
    modules.push_back(
        {parameter.name.substr(0, parameter.name.size() - kWeight.size()), parameter.shape[0]});
  }
  return modules;
}

}  // namespace

std::vector<LinearLayer> linear_layers(const nn::ParameterLayout& layout) {
  std::vector<LinearLayer> layers;
  for (const nn::Linear& linear : layout.linears()) {
    LinearLayer layer{.modules = modules_of(layout, linear), .block = {}, .linear = linear};
    layer.block = block_of(layer.modules.front().name);
    if (linear.transposed) {
      raise<ConfigError>(
          "int8: the weight of {} is stored transposed (Conv1D), and the format of int8 models has "
          "no such layer; leave --apply_quantization out, or pass a model without it",
          layer.modules.front().name);
    }
    if (!layer.block.empty()) layers.push_back(std::move(layer));
  }
  return layers;
}

std::vector<std::string> blocks_of(const std::vector<LinearLayer>& layers) {
  std::vector<std::string> blocks;
  for (const LinearLayer& layer : layers) {
    if (blocks.empty() || blocks.back() != layer.block) blocks.push_back(layer.block);
  }
  return blocks;
}

}  // namespace tandem::quant
