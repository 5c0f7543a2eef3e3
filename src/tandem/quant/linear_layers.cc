#include "tandem/quant/linear_layers.h"

#include <algorithm>
#include <string_view>

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

}  // namespace

std::vector<LinearLayer> linear_layers(const nn::ParameterLayout& layout) {
  std::vector<LinearLayer> layers;
  const nn::ParameterSpec* before = nullptr;
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    // Weights of modules that are computed together follow each other, with no bias between them.
    const bool same_product = before != nullptr && before->kind == nn::ParameterKind::kWeight;
    before = &parameter;
    if (parameter.kind != nn::ParameterKind::kWeight) continue;
    const std::string block = block_of(parameter.name);
    if (block.empty()) continue;
    if (!same_product) {
      layers.push_back({.modules = {},
                        .block = block,
                        .weight_offset = parameter.offset,
                        .out_features = 0,
                        .in_features = parameter.shape[1]});
    }
    LinearLayer& layer = layers.back();
    layer.out_features += parameter.shape[0];
    layer.modules.push_back(
        {parameter.name.substr(0, parameter.name.size() - kWeight.size()), parameter.shape[0]});
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
