#include "tandem/nn/parameter_layout.h"

#include <algorithm>
#include <utility>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"
#include "tandem/kernels/dropout.h"
#include "tandem/nn/pass.h"

namespace tandem::nn {
namespace {

std::size_t element_count(const std::vector<std::size_t>& shape) {
  std::size_t count = 1;
  for (const std::size_t extent : shape) count *= extent;
  return count;
}

constexpr bool is_low_rank(ParameterKind kind) {
  return kind == ParameterKind::kLowRankDown || kind == ParameterKind::kLowRankUp;
}

constexpr bool is_matrix(ParameterKind kind) {
  return kind == ParameterKind::kWeight || is_low_rank(kind);
}

}  // namespace

ParameterLayout::ParameterLayout(std::shared_ptr<const TrainedParts> trained,
                                 const ParameterLayout& measured)
    : trained_(std::move(trained)) {
  for (std::size_t zone = 1; zone < kZones; ++zone)
    ends_[zone] = ends_[zone - 1] + align_up(measured.ends_[zone - 1], kAlignment);
}

std::size_t ParameterLayout::add(std::string name, std::vector<std::size_t> shape,
                                 ParameterKind kind, bool trainable) {
  return append(/*adjacent=*/false, std::move(name), std::move(shape), kind, trainable);
}

std::size_t ParameterLayout::add_adjacent(std::string name, std::vector<std::size_t> shape,
                                          ParameterKind kind) {
  TANDEM_CHECK(!parameters_.empty(), "{} has no parameter to be adjacent to", name);
  if (zone_of(name, kind) != zone_of(parameters_.back().name, parameters_.back().kind)) {
    raise<ConfigError>(
        "{} and {} are one product: found one of them frozen and the other trained, expected both "
        "alike; list all modules of the product in modules_to_save, or none",
        parameters_.back().name, name);
  }
  return append(/*adjacent=*/true, std::move(name), std::move(shape), kind, /*trainable=*/true);
}

Linear ParameterLayout::add_linear(std::string_view name, std::span<const std::string> modules,
                                   std::size_t out_features, std::size_t in_features, Bias bias,
                                   Adaptable adaptable) {
  const std::vector<std::size_t> sizes(modules.size(), out_features);
  return add_linear(name, modules, sizes, in_features, bias, adaptable);
}

Linear ParameterLayout::add_linear(std::string_view name, std::span<const std::string> modules,
                                   std::span<const std::size_t> out_features,
                                   std::size_t in_features, Bias bias, Adaptable adaptable) {
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
  if (adaptable == Adaptable::kYes)
    linear.low_rank = add_low_rank(modules, out_features, in_features);
  linears_.push_back(linear);
  return linear;
}

Linear ParameterLayout::add_transposed_linear(std::string_view name, const std::string& module,
                                              std::size_t out_features, std::size_t in_features) {
  const std::size_t weight =
      add(module + ".weight", {in_features, out_features}, ParameterKind::kWeight);
  const std::size_t bias = add(module + ".bias", {out_features}, ParameterKind::kBias);
  linears_.push_back(
      {.weight = weight,
       .bias = bias,
       .out_features = out_features,
       .in_features = in_features,
       .name = name,
       .transposed = true,
       .low_rank = add_low_rank(std::span(&module, 1), std::span(&out_features, 1), in_features)});
  return linears_.back();
}

LowRank ParameterLayout::add_low_rank(std::span<const std::string> modules,
                                      std::span<const std::size_t> out_features,
                                      std::size_t in_features) {
  LowRank all;
  if (trained_ == nullptr) return all;
  all.site = kernels::dropout_site(static_cast<std::uint32_t>(linears_.size()),
                                   static_cast<std::uint32_t>(DropoutSite::kAdapter));
  std::vector<std::string> names;
  for (std::size_t i = 0, first = 0; i < modules.size(); first += out_features[i++]) {
    if (trained_->trains(modules[i] + ".weight")) continue;
    const auto adapter = trained_->adapter_of(modules[i]);
    if (!adapter) continue;
    all.dropout = adapter->dropout;
    all.parts.push_back({.rank = adapter->rank,
                         .scale = static_cast<float>(adapter->scale),
                         .first_output = first,
                         .outputs = out_features[i]});
    names.push_back(modules[i]);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    all.parts[i].down = append(/*adjacent=*/i > 0, names[i] + ".lora_A.weight",
                               {all.parts[i].rank, in_features}, ParameterKind::kLowRankDown,
                               /*trainable=*/true);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    all.parts[i].up = append(/*adjacent=*/false, names[i] + ".lora_B.weight",
                             {all.parts[i].outputs, all.parts[i].rank}, ParameterKind::kLowRankUp,
                             /*trainable=*/true);
  }
  return all;
}

LayerNormParameters ParameterLayout::add_layer_norm(const std::string& module, std::size_t size,
                                                    Bias has_bias) {
  const std::size_t weight = add(module + ".weight", {size}, ParameterKind::kLayerNormWeight);
  const std::size_t bias =
      has_bias == Bias::kYes ? add(module + ".bias", {size}, ParameterKind::kBias) : kNoParameter;
  return {weight, bias};
}

ParameterLayout::Zone ParameterLayout::zone_of(std::string_view name, ParameterKind kind) const {
  if (trained_ == nullptr || is_low_rank(kind) || trained_->trains(name)) return kTrained;
  return adds_operands_ && kind == ParameterKind::kWeight ? kOperands : kFrozen;
}

std::size_t ParameterLayout::append(bool adjacent, std::string name, std::vector<std::size_t> shape,
                                    ParameterKind kind, bool trainable) {
  const Zone zone = zone_of(name, kind);
  std::size_t& end = ends_[zone];
  if (!adjacent) end = align_up(end, kAlignment);
  TANDEM_CHECK(index_.emplace(name, parameters_.size()).second, "parameter {} added twice", name);
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.size = element_count(shape);
  spec.shape = std::move(shape);
  spec.offset = end;
  spec.kind = kind;
  spec.weight_decay = is_matrix(kind) || kind == ParameterKind::kEmbedding;
  spec.trainable = trainable && zone == kTrained;
  end = spec.end();
  parameters_.push_back(std::move(spec));
  return parameters_.back().offset;
}

const ParameterSpec* ParameterLayout::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &parameters_[found->second];
}

std::size_t ParameterLayout::size() const {
  return align_up(ends_[trained_ == nullptr ? kTrained : kOperands], kAlignment);
}

std::size_t ParameterLayout::trained_size() const { return align_up(ends_[kTrained], kAlignment); }

std::size_t ParameterLayout::operands_begin() const {
  return align_up(ends_[trained_ == nullptr ? kTrained : kFrozen], kAlignment);
}

std::size_t ParameterLayout::bf16_size() const {
  if (size() > operands_begin()) return size();
  std::size_t end = 0;
  for (const ParameterSpec& parameter : parameters_) {
    const bool trained = parameter.offset < trained_size();
    if (trained && is_matrix(parameter.kind)) end = std::max(end, parameter.end());
  }
  return align_up(end, kAlignment);
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
  std::vector<const ParameterSpec*> zone;
  for (const ParameterSpec& parameter : parameters_) {
    if (parameter.offset < trained_size()) zone.push_back(&parameter);
  }
  std::vector<ElementRange> ranges;
  for (std::size_t i = 0; i < zone.size(); ++i) {
    const ParameterSpec& parameter = *zone[i];
    if (!parameter.trainable) continue;
    const std::size_t end = i + 1 < zone.size() ? zone[i + 1]->offset : trained_size();
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
