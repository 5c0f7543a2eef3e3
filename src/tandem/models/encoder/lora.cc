#include "tandem/models/encoder/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "tandem/core/error.h"

namespace tandem::models {
namespace {

struct FamilyTargets {
  std::string_view model_type;
  std::string_view first, second = {};
};

// PEFT's table; it has no entry for the last three.
constexpr FamilyTargets kTargets[] = {
    {"bert", "query", "value"},    {"deberta-v2", "query_proj", "value_proj"},
    {"roberta", "query", "value"}, {"xlm-roberta", "query", "value"},
    {"electra", "query", "value"}, {"gpt2", "c_attn"},
    {"llama", "q_proj", "v_proj"}, {"qwen2", "q_proj", "v_proj"},
    {"qwen3", "q_proj", "v_proj"}, {"distilbert", "q_lin", "v_lin"},
    {"mpnet", "attn.q", "attn.v"}, {"modernbert", "Wqkv"}};

std::regex compiled(const std::string& pattern, std::string_view key) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    raise<ConfigError>("{} is '{}'; expected a regular expression ({})", key, pattern,
                       error.what());
  }
}

bool matches(const std::string& pattern, std::string_view text, std::string_view key) {
  return std::regex_match(text.begin(), text.end(), compiled(pattern, key));
}

// "a.b.query" is named by "query", "b.query" and itself.
bool is_named(const std::vector<std::string>& names, std::string_view module) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    return module == name || module.ends_with("." + name);
  });
}

bool is_among(const ModuleNames& modules, std::string_view module, std::string_view key) {
  return modules.pattern.empty() ? is_named(modules.names, module)
                                 : matches(modules.pattern, module, key);
}

template <class T>
T value_for(const std::vector<std::pair<std::string, T>>& pattern, std::string_view module,
            T otherwise, std::string_view key) {
  for (const auto& [name, value] : pattern) {
    if (matches(fmt::format("(.*\\.)?({})", name), module, key)) return value;
  }
  return otherwise;
}

}  // namespace

std::vector<std::string> default_targets(const Family& family) {
  const auto found = std::ranges::find(kTargets, family.model_type, &FamilyTargets::model_type);
  if (found == std::end(kTargets)) {
    raise<ConfigError>("--lora_target_modules: found none, and {} has no default; name the layers",
                       family.model_type);
  }
  std::vector<std::string> names{std::string(found->first)};
  if (!found->second.empty()) names.emplace_back(found->second);
  return names;
}

std::string_view name_of_whole_module(const LoraConfig& config, std::string_view parameter) {
  for (std::size_t end = parameter.rfind('.'); end != std::string_view::npos && end > 0;
       end = parameter.rfind('.', end - 1)) {
    const std::string_view module = parameter.substr(0, end);
    for (const std::string& name : config.modules_to_save)
      if (module.ends_with(name)) return name;
  }
  return {};
}

std::size_t lora_rank(const LoraConfig& config, std::string_view module) {
  return value_for(config.rank_pattern, module, config.r, "rank_pattern");
}

double lora_scale(const LoraConfig& config, std::string_view module) {
  const auto rank = static_cast<double>(lora_rank(config, module));
  return value_for(config.alpha_pattern, module, config.lora_alpha, "alpha_pattern") /
         (config.use_rslora ? std::sqrt(rank) : rank);
}

LoraParts::LoraParts(const LoraConfig& config, const ModelConfig& model)
    : config_(config), base_prefix_(model.family->base_prefix) {
  config_.validate();
  if (config_.target_modules.empty()) config_.target_modules.names = default_targets(*model.family);
}

bool LoraParts::is_in_chosen_layer(std::string_view module) const {
  if (config_.layers_to_transform.empty()) return true;
  const std::string any = "[^.]*";
  const std::vector<std::string> patterns =
      config_.layers_pattern.empty() ? std::vector<std::string>{any} : config_.layers_pattern;
  for (const std::string& pattern : patterns) {
    std::match_results<std::string_view::const_iterator> found;
    const std::regex expression =
        compiled(fmt::format("(?:^|.*?\\.){}\\.(\\d+)\\..*", pattern), "layers_pattern");
    if (!std::regex_match(module.begin(), module.end(), found, expression)) continue;
    const std::string number = found[1].str();
    return std::ranges::any_of(config_.layers_to_transform,
                               [&](std::size_t layer) { return std::to_string(layer) == number; });
  }
  return false;
}

bool LoraParts::is_target(std::string_view module) const {
  if (!config_.exclude_modules.empty() &&
      is_among(config_.exclude_modules, module, "exclude_modules"))
    return false;
  if (config_.target_modules.all_linear) return true;
  if (!config_.target_modules.pattern.empty())
    return matches(config_.target_modules.pattern, module, "target_modules");
  return is_named(config_.target_modules.names, module) && is_in_chosen_layer(module);
}

std::optional<nn::TrainedParts::Adapter> LoraParts::adapter_of(std::string_view module) const {
  modules_.emplace(module);
  if (!is_target(module)) return std::nullopt;
  matched_ = true;
  return Adapter{.rank = lora_rank(config_, module),
                 .scale = lora_scale(config_, module),
                 .dropout = config_.lora_dropout};
}

bool LoraParts::trains(std::string_view parameter) const {
  if (config_.base_tensors) {
    std::string_view bare = parameter;
    if (bare.starts_with(base_prefix_)) bare.remove_prefix(base_prefix_.size());
    if (!config_.base_tensors->contains(parameter) && !config_.base_tensors->contains(bare))
      return true;
  }
  return !name_of_whole_module(config_, parameter).empty();
}

void LoraParts::require_matches() const {
  if (matched_) return;
  const ModuleNames& targets = config_.target_modules;
  raise<ConfigError>(
      "target_modules is {}; expected names of linear layers of the model: {}",
      targets.pattern.empty() ? fmt::format("{}", fmt::join(targets.names, ", ")) : targets.pattern,
      fmt::join(modules_, ", "));
}

}  // namespace tandem::models
