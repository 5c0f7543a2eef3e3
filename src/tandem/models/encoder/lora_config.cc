#include "tandem/models/encoder/lora_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/volume.h"

namespace tandem::models {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The newest version whose files these are.
constexpr const char* kPeftVersion = "0.21.2";
constexpr const char* kAllLinear = "all-linear";
const std::size_t kLargestRank = 65536;  // columns of a product

// Keys of variants that change what is computed. Null, false, {} and [] mean: not used.
constexpr const char* kVariants[] = {
    "use_dora",          "use_qalora",        "use_bdlora",
    "lora_bias",         "target_parameters", "trainable_token_indices",
    "layer_replication", "megatron_config",   "alora_invocation_tokens",
    "arrow_config",      "corda_config",      "eva_config",
    "loftq_config",      "lora_ga_config",    "kasa_config",
    "monteclora_config", "velora_config"};

// Keys without a value in the files of plain LoRA.
constexpr const char* kAlwaysNull[] = {"alora_invocation_tokens",
                                       "arrow_config",
                                       "auto_mapping",
                                       "corda_config",
                                       "eva_config",
                                       "kasa_config",
                                       "layer_replication",
                                       "lora_ga_config",
                                       "megatron_config",
                                       "monteclora_config",
                                       "target_parameters",
                                       "trainable_token_indices",
                                       "use_bdlora",
                                       "velora_config"};

bool is_unused(const OrderedJson& value) {
  return value.is_null() || value == OrderedJson(false) || (value.is_structured() && value.empty());
}

// Reads the values of one file.
class LoraReader {
 public:
  LoraReader(const OrderedJson& json, std::string_view where) : json_(json), where_(where) {}

  // Null where the object lacks the key or has null.
  const OrderedJson* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] void fail(const char* key, std::string_view expected) const {
    const auto found = json_.find(key);
    raise<ConfigError>("{}: {} is {}; expected {}", where_, key,
                       found == json_.end() ? "missing" : found->dump(), expected);
  }
  std::size_t count(const char* key, std::size_t otherwise) const {
    const OrderedJson* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number_unsigned()) fail(key, "a whole number");
    return value->get<std::size_t>();
  }
  double number(const char* key, double otherwise) const {
    const OrderedJson* const value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) fail(key, "a number");
    return value->get<double>();
  }
  bool flag(const char* key) const {
    const OrderedJson* const value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) fail(key, "true or false");
    return value->get<bool>();
  }
  std::optional<std::string> text(const char* key) const {
    const OrderedJson* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) fail(key, "a text");
    return value->get<std::string>();
  }
  std::vector<std::string> texts(const char* key) const {
    const OrderedJson* const value = find(key);
    std::vector<std::string> all;
    if (value == nullptr) return all;
    if (value->is_string()) return {value->get<std::string>()};
    if (!value->is_array()) fail(key, "a list of names");
    for (const OrderedJson& one : *value) {
      if (!one.is_string()) fail(key, "a list of names");
      all.push_back(one.get<std::string>());
    }
    return all;
  }
  ModuleNames modules(const char* key) const {
    const OrderedJson* const value = find(key);
    ModuleNames modules;
    if (value == nullptr || !value->is_string()) {
      modules.names = texts(key);
      std::ranges::sort(modules.names);
      return modules;
    }
    const auto text = value->get<std::string>();
    modules.all_linear = text == kAllLinear;
    if (!modules.all_linear) modules.pattern = text;
    return modules;
  }
  template <class T>
  std::vector<std::pair<std::string, T>> pattern(const char* key) const {
    std::vector<std::pair<std::string, T>> all;
    const OrderedJson* const value = find(key);
    if (value == nullptr) return all;
    if (!value->is_object()) fail(key, "an object of numbers");
    for (const auto& [name, number] : value->items()) {
      if (std::is_integral_v<T> ? !number.is_number_unsigned() : !number.is_number())
        fail(key, "an object of numbers");
      all.emplace_back(name, number.template get<T>());
    }
    return all;
  }
  std::vector<std::size_t> counts(const char* key) const {
    const OrderedJson* const value = find(key);
    std::vector<std::size_t> all;
    if (value == nullptr) return all;
    const auto add = [&](const OrderedJson& one) {
      if (!one.is_number_unsigned()) fail(key, "layer numbers");
      all.push_back(one.get<std::size_t>());
    };
    if (!value->is_array()) {
      add(*value);
    } else {
      for (const OrderedJson& one : *value) add(one);
    }
    return all;
  }

 private:
  const OrderedJson& json_;
  std::string_view where_;
};

void refuse_variants(const LoraReader& reader) {
  if (reader.text("peft_type").value_or("") != "LORA")
    reader.fail("peft_type", "\"LORA\"; tandem has no other adapters");
  for (const char* key : kVariants) {
    const OrderedJson* const value = reader.find(key);
    if (value != nullptr && !is_unused(*value))
      reader.fail(key, "no such variant of LoRA; tandem computes plain LoRA and rsLoRA");
  }
  if (reader.text("bias").value_or("none") != "none")
    reader.fail("bias", "\"none\"; tandem trains no biases next to adapters");
}

bool is_gaussian(const LoraReader& reader) {
  const OrderedJson* const value = reader.find("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return false;
  if (*value != "gaussian")
    reader.fail("init_lora_weights", "true or \"gaussian\"; other ways change the base model");
  return true;
}

OrderedJson list_or_null(const std::vector<std::string>& names) {
  return names.empty() ? OrderedJson(nullptr) : OrderedJson(names);
}

OrderedJson modules_or_null(const ModuleNames& modules) {
  return modules.pattern.empty() ? list_or_null(modules.names) : OrderedJson(modules.pattern);
}

template <class T>
OrderedJson object_of(const std::vector<std::pair<std::string, T>>& pattern) {
  OrderedJson object = OrderedJson::object();
  for (const auto& [name, value] : pattern) object[name] = value;
  return object;
}

// As Python writes it: a whole number without a fraction.
OrderedJson number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

}  // namespace

ModuleNames ModuleNames::parse(const std::vector<std::string>& values) {
  ModuleNames modules;
  const auto is_name = [](const std::string& text) {
    return std::ranges::all_of(text, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
    });
  };
  if (values.size() == 1 && values.front() == kAllLinear) {
    modules.all_linear = true;
  } else if (values.size() == 1 && !is_name(values.front())) {
    modules.pattern = values.front();
  } else {
    modules.names = values;
  }
  return modules;
}

LoraConfig LoraConfig::parse(std::string_view text, std::string_view where) {
  OrderedJson json;
  try {
    json = parse_ordered_json(text);
  } catch (const nlohmann::json::exception& error) {
    raise<ConfigError>("{}: {}", where, json_reason(error.what()));
  }
  if (!json.is_object()) raise<ConfigError>("{}: expected a JSON object", where);
  const LoraReader reader(json, where);
  refuse_variants(reader);
  LoraConfig config;
  config.r = reader.count("r", config.r);
  config.lora_alpha = reader.number("lora_alpha", config.lora_alpha);
  config.lora_dropout = reader.number("lora_dropout", config.lora_dropout);
  config.use_rslora = reader.flag("use_rslora");
  config.gaussian_init = is_gaussian(reader);
  config.target_modules = reader.modules("target_modules");
  config.exclude_modules = reader.modules("exclude_modules");
  config.modules_to_save = reader.texts("modules_to_save");
  config.rank_pattern = reader.pattern<std::size_t>("rank_pattern");
  config.alpha_pattern = reader.pattern<double>("alpha_pattern");
  config.layers_to_transform = reader.counts("layers_to_transform");
  config.layers_pattern = reader.texts("layers_pattern");
  config.base_model_name_or_path = reader.text("base_model_name_or_path").value_or("");
  config.revision = reader.text("revision");
  config.task_type = reader.text("task_type").value_or("");
  reader.flag("fan_in_fan_out");  // the model decides
  try {
    config.validate();
  } catch (const ConfigError& error) {
    raise<ConfigError>("{}: {}", where, error.what());
  }
  return config;
}

LoraConfig LoraConfig::load(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kAdapterConfigFile;
  return parse(read_file(file), file.native());
}

void LoraConfig::validate() const {
  const auto check_rank = [](std::size_t rank, std::string_view name) {
    if (rank == 0 || rank > kLargestRank)
      raise<ConfigError>("{} is {}; expected 1 to {}", name, rank, kLargestRank);
  };
  check_rank(r, "lora_r");
  for (const auto& [name, rank] : rank_pattern)
    check_rank(rank, fmt::format("rank_pattern of {}", name));
  if (!std::isfinite(lora_alpha))
    raise<ConfigError>("lora_alpha is {}; expected a number", lora_alpha);
  if (!(lora_dropout >= 0 && lora_dropout < 1))
    raise<ConfigError>("lora_dropout is {}; expected a number in [0, 1)", lora_dropout);
}

bool is_adapter_directory(const std::filesystem::path& directory) {
  return is_there(directory / kAdapterConfigFile);
}

std::string adapter_config_json(const LoraConfig& config, const SavedLora& saved) {
  OrderedJson json = {
      {"alpha_pattern", object_of(config.alpha_pattern)},
      {"base_model_name_or_path", config.base_model_name_or_path},
      {"bias", "none"},
      {"ensure_weight_tying", false},
      {"exclude_modules", modules_or_null(config.exclude_modules)},
      {"fan_in_fan_out", saved.fan_in_fan_out},
      {"inference_mode", true},
      {"init_lora_weights", config.gaussian_init ? OrderedJson("gaussian") : OrderedJson(true)},
      {"layers_pattern", list_or_null(config.layers_pattern)},
      {"layers_to_transform", nullptr},
      {"loftq_config", OrderedJson::object()},
      {"lora_alpha", number(config.lora_alpha)},
      {"lora_bias", false},
      {"lora_dropout", config.lora_dropout},
      {"megatron_core", "megatron.core"},
      {"modules_to_save", list_or_null(saved.modules_to_save)},
      {"peft_type", "LORA"},
      {"peft_version", kPeftVersion},
      {"qalora_group_size", 16},
      {"r", config.r},
      {"rank_pattern", object_of(config.rank_pattern)},
      {"revision", config.revision ? OrderedJson(*config.revision) : OrderedJson(nullptr)},
      {"target_modules", config.target_modules.pattern.empty()
                             ? OrderedJson(saved.target_modules)
                             : OrderedJson(config.target_modules.pattern)},
      {"task_type", saved.task_type.empty() ? OrderedJson(nullptr) : OrderedJson(saved.task_type)},
      {"use_dora", false},
      {"use_qalora", false},
      {"use_rslora", config.use_rslora}};
  for (const char* key : kAlwaysNull) json[key] = nullptr;
  if (!config.layers_to_transform.empty()) json["layers_to_transform"] = config.layers_to_transform;
  return python_json(json, {.indent = 2, .sort_keys = true});
}

}  // namespace tandem::models
