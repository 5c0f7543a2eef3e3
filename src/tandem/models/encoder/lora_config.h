// The adapter_config.json of PEFT: which layers of a frozen model get low-rank adapters
// (nn/low_rank.h), and what else is trained.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::models {

// Modules by name, as PEFT's target_modules and exclude_modules state them.
struct ModuleNames {
  std::vector<std::string> names;  // ends of names: "query" is every "….query"
  std::string pattern;             // or a regular expression that the whole name matches
  bool all_linear = false;         // or every linear layer but the output layer

  bool empty() const { return names.empty() && pattern.empty() && !all_linear; }
  // The value of a flag. One value may be "all-linear" or a regular expression, which has other
  // characters than names.
  static ModuleNames parse(const std::vector<std::string>& values);
};

// Fields have PEFT's names and defaults.
struct LoraConfig {
  std::size_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  bool use_rslora = false;     // scale α/√r instead of α/r
  bool gaussian_init = false;  // init_lora_weights "gaussian"; else true
  ModuleNames target_modules;  // empty: those of the family (default_targets())
  ModuleNames exclude_modules;
  std::vector<std::string> modules_to_save;  // trained whole; ends of names
  // Values for modules by name, the first match counts.
  std::vector<std::pair<std::string, std::size_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::size_t> layers_to_transform;  // empty: all layers
  std::vector<std::string> layers_pattern;       // names in front of the layer's number; empty: any
  std::string base_model_name_or_path;
  std::optional<std::string> revision;
  std::string task_type;  // of the file: "SEQ_CLS"; empty: none

  // The tensors of the base model's file; without a value unknown. A parameter that the base model
  // lacks is trained whole.
  std::optional<std::set<std::string, std::less<>>> base_tensors;

  // Reads an adapter_config.json text; `where` names it in messages. Throws ConfigError for broken
  // JSON, another method than LoRA, variants of it that tandem does not compute, and values of the
  // wrong type or range.
  static LoraConfig parse(std::string_view json, std::string_view where);
  // parse() of <directory>/adapter_config.json. Throws IoError when it is not there.
  static LoraConfig load(const std::filesystem::path& directory);

  // Throws ConfigError for a value out of range, with the flag's name.
  void validate() const;
};

inline constexpr std::string_view kAdapterConfigFile = "adapter_config.json";

// Whether a model directory holds an adapter instead of a whole model.
bool is_adapter_directory(const std::filesystem::path& directory);

// The modules of a model that match a LoraConfig, in the form in which they are saved.
struct SavedLora {
  std::string task_type;                     // "SEQ_CLS"; empty: null
  std::vector<std::string> target_modules;   // ends of names, or whole names
  std::vector<std::string> modules_to_save;  // the same; empty: null
  bool fan_in_fan_out = false;               // the weights of target_modules are stored transposed
};

// adapter_config.json, byte for byte as PEFT writes it: sorted keys, 2-space indent.
std::string adapter_config_json(const LoraConfig& config, const SavedLora& saved);

}  // namespace tandem::models
