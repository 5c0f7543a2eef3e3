// The modules of a model that a LoraConfig trains, by PEFT's rules.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/models/encoder/lora_config.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::models {

// The target_modules of a family where the config has none: PEFT's, and queries and values for the
// families that PEFT has no default for. Throws ConfigError for other families.
std::vector<std::string> default_targets(const Family& family);

// Matches modules of a layout, and records them. Keeps a copy of both configs' values.
class LoraParts final : public nn::TrainedParts {
 public:
  LoraParts(const LoraConfig& config, const ModelConfig& model);

  std::optional<Adapter> adapter_of(std::string_view module) const override;
  bool trains(std::string_view parameter) const override;

  // Throws ConfigError if no module was asked about that is a target, with the names there are.
  void require_matches() const;

 private:
  bool is_target(std::string_view module) const;
  bool is_in_chosen_layer(std::string_view module) const;

  LoraConfig config_;
  std::string_view base_prefix_;
  mutable std::set<std::string, std::less<>> modules_;  // asked about
  mutable bool matched_ = false;
};

// The name in modules_to_save for which this parameter is trained whole; empty: none. A module is
// saved if its name, or that of a module around it, ends with the name.
std::string_view name_of_whole_module(const LoraConfig& config, std::string_view parameter);

// α/r, or α/√r, for this module.
double lora_scale(const LoraConfig& config, std::string_view module);
std::size_t lora_rank(const LoraConfig& config, std::string_view module);

}  // namespace tandem::models
