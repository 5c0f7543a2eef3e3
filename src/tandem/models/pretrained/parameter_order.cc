#include "tandem/models/pretrained/parameter_order.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "tandem/models/encoder/family.h"

namespace tandem::models {
namespace {

using Parameters = std::vector<const nn::ParameterSpec*>;

// The matrices of an adapter belong to the module of their layer.
std::string_view module_of(const nn::ParameterSpec& parameter) {
  const std::string_view name = parameter.name;
  for (const std::string_view suffix : {".lora_A.weight", ".lora_B.weight"})
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  return name.substr(0, name.rfind('.'));
}

// The linear layer that reads `parameter`; null for other parameters.
const nn::Linear* linear_of(const nn::ParameterLayout& layout, const nn::ParameterSpec& parameter) {
  const auto is_of_adapter = [&](const nn::LowRankPart& part) {
    return parameter.offset == part.down || parameter.offset == part.up;
  };
  const auto reads = [&](const nn::Linear& linear) {
    if (std::ranges::any_of(linear.low_rank.parts, is_of_adapter)) return true;
    const std::size_t weights = linear.out_features * linear.in_features;
    return (parameter.offset >= linear.weight && parameter.offset < linear.weight + weights) ||
           (parameter.offset >= linear.bias &&
            parameter.offset < linear.bias + linear.out_features);
  };
  const auto found = std::ranges::find_if(layout.linears(), reads);
  return found == layout.linears().end() ? nullptr : &*found;
}

// Parameters that the layout added together: those of a module, or of the modules of one linear
// layer, which stand in the order of their definition.
bool same_unit(const nn::ParameterLayout& layout, const nn::ParameterSpec& a,
               const nn::ParameterSpec& b) {
  if (module_of(a) == module_of(b)) return true;
  const nn::Linear* linear = linear_of(layout, a);
  return linear != nullptr && linear == linear_of(layout, b);
}

// A unit with several modules (query, key, value) has all weights first in the layout.
void append_by_module(Parameters unit, Parameters& all) {
  std::vector<std::string_view> modules;
  for (const nn::ParameterSpec* parameter : unit) {
    if (std::ranges::find(modules, module_of(*parameter)) == modules.end())
      modules.push_back(module_of(*parameter));
  }
  for (const std::string_view module : modules) {
    std::ranges::copy_if(unit, std::back_inserter(all), [&](const nn::ParameterSpec* parameter) {
      return module_of(*parameter) == module;
    });
  }
}

// Whether these parameters are of RoBERTa or XLM-R.
bool is_roberta_like(std::string_view name) {
  return name.starts_with(kRoberta.base_prefix) || name.starts_with(kXlmRoberta.base_prefix);
}

void move_positions_behind_norm(Parameters& all) {
  const auto position = std::ranges::find_if(all, [](const nn::ParameterSpec* parameter) {
    return parameter->name.ends_with("embeddings.position_embeddings.weight") &&
           is_roberta_like(parameter->name);
  });
  const auto norm = std::ranges::find_if(all, [](const nn::ParameterSpec* parameter) {
    return parameter->name.ends_with("embeddings.LayerNorm.bias");
  });
  if (position < norm && norm != all.end()) std::rotate(position, position + 1, norm + 1);
}

// Parameters that the layers share are defined behind them, and finished by backward after them:
// a table, and a norm of it in DeBERTa. Their module is that of the layers.
void move_shared_behind_layers(Parameters& all) {
  constexpr std::array<std::pair<std::string_view, std::ptrdiff_t>, 2> kTables = {
      {{"relative_attention_bias.weight", 1}, {"rel_embeddings.weight", 3}}};
  for (const auto& [table, count] : kTables) {
    const auto shared =
        std::ranges::find_if(all, [table = table](const nn::ParameterSpec* parameter) {
          return parameter->name.ends_with(table);
        });
    if (shared == all.end()) continue;
    const std::string_view name = (*shared)->name;
    const std::string_view module = name.substr(0, name.size() - table.size());
    const auto end = std::find_if(shared, all.end(), [&](const nn::ParameterSpec* parameter) {
      return !parameter->name.starts_with(module);
    });
    std::rotate(shared, shared + count, end);
  }
}

// The head's parameters are those without the prefix of an encoder.
void move_head_first(Parameters& all) {
  std::stable_partition(all.begin(), all.end(), [](const nn::ParameterSpec* parameter) {
    return std::ranges::none_of(families(), [&](const Family* family) {
      return parameter->name.starts_with(family->base_prefix);
    });
  });
}

// A shared output matrix is listed with the head, which is met first, as lm_head.decoder.weight.
void move_shared_words_behind_head(const nn::ParameterLayout& layout, Parameters& all) {
  const MaskedLanguageHeadParts& head = kXlmRoberta.masked_language_head;
  const bool shared = layout.find(head.bias) != nullptr &&
                      layout.find(std::string(head.output) + ".weight") == nullptr;
  if (!shared) return;
  const auto encoder = std::ranges::find_if(all, [](const nn::ParameterSpec* parameter) {
    return parameter->name.starts_with(kXlmRoberta.base_prefix);
  });
  const auto words = std::find_if(encoder, all.end(), [](const nn::ParameterSpec* parameter) {
    return parameter->name.ends_with("embeddings.word_embeddings.weight");
  });
  if (words != all.end()) std::rotate(encoder, words, words + 1);
}

}  // namespace

DefinitionOrder newest_definition_order(std::string_view model_type) {
  return model_type == kXlmRoberta.model_type ? DefinitionOrder::kTransformers5HeadFirst
                                              : DefinitionOrder::kTransformers5;
}

std::vector<const nn::ParameterSpec*> parameters_as_defined(const nn::ParameterLayout& layout,
                                                            DefinitionOrder order) {
  // Backward finishes the units in the reverse order of their definition.
  const std::vector<nn::ParameterSpec>& parameters = layout.parameters();
  Parameters all;
  for (std::size_t end = parameters.size(); end > 0;) {
    std::size_t begin = end - 1;
    while (begin > 0 && same_unit(layout, parameters[begin - 1], parameters[end - 1])) --begin;
    Parameters unit;
    for (std::size_t i = begin; i < end; ++i) unit.push_back(&parameters[i]);
    append_by_module(std::move(unit), all);
    end = begin;
  }
  move_shared_behind_layers(all);
  if (order != DefinitionOrder::kTransformers4) move_positions_behind_norm(all);
  if (order == DefinitionOrder::kTransformers5HeadFirst) {
    move_head_first(all);
    move_shared_words_behind_head(layout, all);
  }
  return all;
}

}  // namespace tandem::models
