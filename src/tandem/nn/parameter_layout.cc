#include "tandem/nn/parameter_layout.h"

#include <utility>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"

namespace tandem::nn {
namespace {

std::size_t element_count(const std::vector<std::size_t>& shape) {
  std::size_t count = 1;
  for (const std::size_t extent : shape) count *= extent;
  return count;
}

}  // namespace

std::size_t ParameterLayout::add(std::string name, std::vector<std::size_t> shape,
                                 ParameterKind kind, bool trainable) {
  return append(size(), std::move(name), std::move(shape), kind, trainable);
}

std::size_t ParameterLayout::add_adjacent(std::string name, std::vector<std::size_t> shape,
                                          ParameterKind kind) {
  TANDEM_CHECK(!parameters_.empty(), "{} has no parameter to be adjacent to", name);
  return append(parameters_.back().end(), std::move(name), std::move(shape), kind,
                parameters_.back().trainable);
}

Linear ParameterLayout::add_linear(std::string_view name, std::span<const std::string> modules,
                                   std::size_t out_features, std::size_t in_features, Bias bias) {
  const std::vector<std::size_t> sizes(modules.size(), out_features);
  return add_linear(name, modules, sizes, in_features, bias);
}

Linear ParameterLayout::add_linear(std::string_view name, std::span<const std::string> modules,
                                   std::span<const std::size_t> out_features,
                                   std::size_t in_features, Bias bias) {
  TANDEM_CHECK(modules.size() == out_features.size(), "{} modules have {} sizes", modules.size(),
               out_features.size());
  Linear linear{.in_features = in_features, .name = name};
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const std::string weight = modules[i] + ".weight";
    const std::vector<std::size_t> shape = {out_features[i], in_features};
    const std::size_t offset = i == 0 ? add(weight, shape, ParameterKind::kWeight)
                                      : add_adjacent(weight, shape, ParameterKind::kWeight);
    if (i == 0) linear.weight = offset;
    linear.out_features += out_features[i];
  }
  linear.bias = kNoParameter;
  for (std::size_t i = 0; bias == Bias::kYes && i < modules.size(); ++i) {
    const std::string name_of_bias = modules[i] + ".bias";
    const std::size_t offset =
        i == 0 ? add(name_of_bias, {out_features[i]}, ParameterKind::kBias)
               : add_adjacent(name_of_bias, {out_features[i]}, ParameterKind::kBias);
    if (i == 0) linear.bias = offset;
  }
  linears_.push_back(linear);
  return linear;
}

Linear ParameterLayout::add_transposed_linear(std::string_view name, const std::string& module,
                                              std::size_t out_features, std::size_t in_features) {
  const std::size_t weight =
      add(module + ".weight", {in_features, out_features}, ParameterKind::kWeight);
  const std::size_t bias = add(module + ".bias", {out_features}, ParameterKind::kBias);
  linears_.push_back({.weight = weight,
                      .bias = bias,
                      .out_features = out_features,
                      .in_features = in_features,
                      .name = name,
                      .transposed = true});
  return linears_.back();
}

LayerNormParameters ParameterLayout::add_layer_norm(const std::string& module, std::size_t size,
                                                    Bias has_bias) {
  const std::size_t weight = add(module + ".weight", {size}, ParameterKind::kLayerNormWeight);
  const std::size_t bias =
      has_bias == Bias::kYes ? add(module + ".bias", {size}, ParameterKind::kBias) : kNoParameter;
  return {weight, bias};
}

std::size_t ParameterLayout::append(std::size_t offset, std::string name,
                                    std::vector<std::size_t> shape, ParameterKind kind,
                                    bool trainable) {
  TANDEM_CHECK(index_.emplace(name, parameters_.size()).second, "parameter {} added twice", name);
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.size = element_count(shape);
  spec.shape = std::move(shape);
  spec.offset = offset;
  spec.kind = kind;
  spec.weight_decay = kind == ParameterKind::kWeight || kind == ParameterKind::kEmbedding;
  spec.trainable = trainable;
  parameters_.push_back(std::move(spec));
  return offset;
}

const ParameterSpec* ParameterLayout::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &parameters_[found->second];
}

std::size_t ParameterLayout::size() const {
  return parameters_.empty() ? 0 : align_up(parameters_.back().end(), kAlignment);
}

std::size_t ParameterLayout::bf16_size() const {
  std::size_t end = 0;
  for (const ParameterSpec& parameter : parameters_) {
    if (parameter.kind == ParameterKind::kWeight) end = align_up(parameter.end(), kAlignment);
  }
  return end;
}

std::size_t ParameterLayout::num_parameters() const {
  std::size_t count = 0;
  for (const ParameterSpec& parameter : parameters_) count += parameter.size;
  return count;
}

std::size_t ParameterLayout::num_trainable_parameters() const {
  std::size_t count = 0;
  for (const ParameterSpec& parameter : parameters_)
    count += parameter.trainable ? parameter.size : 0;
  return count;
}

std::vector<ElementRange> ParameterLayout::trainable_ranges() const {
  std::vector<ElementRange> ranges;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterSpec& parameter = parameters_[i];
    if (!parameter.trainable) continue;
    const std::size_t end = i + 1 < parameters_.size() ? parameters_[i + 1].offset : size();
    if (!ranges.empty() && ranges.back().end == parameter.offset &&
        ranges.back().weight_decay == parameter.weight_decay) {
      ranges.back().end = end;
    } else {
      ranges.push_back({parameter.offset, end, parameter.weight_decay});
    }
  }
  return ranges;
}

}  // namespace tandem::nn
