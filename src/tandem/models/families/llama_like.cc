#include "tandem/models/families/llama_like.h"

#include <algorithm>
#include <optional>
#include <string>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::models::llama_like {
namespace {

using Json = nlohmann::json;

// The value of a key, or null where the object lacks it or has null.
const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void read_count(const Json& object, const char* key, std::string_view where, std::size_t& value) {
  const Json* const found = find(object, key);
  if (found == nullptr) return;
  if (!found->is_number_unsigned() || *found == 0)
    raise<ConfigError>("{}: {} is {}; expected a positive integer", where, key, found->dump());
  value = found->get<std::size_t>();
}

void read_positive(const Json& object, const char* key, std::string_view where, double& value) {
  const Json* const found = find(object, key);
  if (found == nullptr) return;
  if (!found->is_number() || !(found->get<double>() > 0))
    raise<ConfigError>("{}: {} is {}; expected a number > 0", where, key, found->dump());
  value = found->get<double>();
}

// The type of an object rope_scaling or rope_parameters; old files call the key "type".
std::string type_of(const Json& rope, const char* key, std::string_view where) {
  if (!rope.is_object())
    raise<ConfigError>("{}: {} is {}; expected an object or null", where, key, rope.dump());
  for (const char* name : {"rope_type", "type"}) {
    const Json* const type = find(rope, name);
    if (type != nullptr && type->is_string()) return type->get<std::string>();
  }
  return "default";
}

void read_scaling(const Json& json, const char* key, std::string_view where,
                  RotaryAttention& attention) {
  const Json* const rope = find(json, key);
  if (rope == nullptr) return;
  const std::string type = type_of(*rope, key, where);
  read_positive(*rope, "rope_theta", where, attention.global_theta);
  if (type == "default") return;
  if (type != "llama3") {
    raise<ConfigError>("{}: {} has the type {}; expected default or llama3", where, key, type);
  }
  kernels::RotaryScaling scaling;
  read_positive(*rope, "factor", where, scaling.factor);
  read_positive(*rope, "low_freq_factor", where, scaling.low_frequency_factor);
  read_positive(*rope, "high_freq_factor", where, scaling.high_frequency_factor);
  read_count(*rope, "original_max_position_embeddings", where, scaling.original_positions);
  if (!(scaling.low_frequency_factor < scaling.high_frequency_factor)) {
    raise<ConfigError>("{}: {} has low_freq_factor {}; expected less than high_freq_factor {}",
                       where, key, scaling.low_frequency_factor, scaling.high_frequency_factor);
  }
  attention.scaling = scaling;
}

void check_layer_types(const Json& json, std::string_view where) {
  const Json* const types = find(json, "layer_types");
  if (types == nullptr) return;
  const auto reads_all = [](const Json& type) {
    return type.is_string() && type.get_ref<const std::string&>() == "full_attention";
  };
  if (!types->is_array() || !std::ranges::all_of(*types, reads_all)) {
    raise<ConfigError>("{}: layer_types is {}; expected full_attention for every layer", where,
                       types->dump());
  }
}

}  // namespace

void read_more(const Json& json, std::string_view where, ModelConfig& config) {
  check_layer_types(json, where);
  read_positive(json, "rope_theta", where, config.attention.global_theta);
  read_scaling(json, "rope_scaling", where, config.attention);
  read_scaling(json, "rope_parameters", where, config.attention);
}

// The keys of transformers 4. A file of transformers 5 keeps its own, which mean the same.
void write_more(const ModelConfig& config, nlohmann::ordered_json& json) {
  json["num_key_value_heads"] =
      config.num_key_value_heads == 0 ? config.num_attention_heads : config.num_key_value_heads;
  json["head_dim"] = config.head_dim();
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  if (json.contains("rope_parameters")) return;
  json["rope_theta"] = config.attention.global_theta;
  if (!config.attention.scaling) {
    if (!json.contains("rope_scaling")) json["rope_scaling"] = nullptr;
    return;
  }
  const kernels::RotaryScaling& scaling = *config.attention.scaling;
  json["rope_scaling"] = {{"factor", scaling.factor},
                          {"high_freq_factor", scaling.high_frequency_factor},
                          {"low_freq_factor", scaling.low_frequency_factor},
                          {"original_max_position_embeddings", scaling.original_positions},
                          {"rope_type", "llama3"}};
}

void set_defaults(ModelConfig& config) {
  config.vocab_size = 32000;
  config.hidden_size = 4096;
  config.num_hidden_layers = 32;
  config.num_attention_heads = 32;
  config.intermediate_size = 11008;
  config.max_position_embeddings = 2048;
  config.type_vocab_size = 0;
  config.pad_token_id = -1;
  config.hidden_act = kernels::Activation::kSilu;
  config.hidden_dropout_prob = 0;
  config.attention_probs_dropout_prob = 0;
  config.layer_norm_eps = 1e-6;
  config.tie_word_embeddings = false;
  config.attention.global_every = 1;
  config.attention.global_theta = 10000;
}

void set_defaults_of_qwen(ModelConfig& config) {
  set_defaults(config);
  config.vocab_size = 151936;
  config.intermediate_size = 22016;
  config.max_position_embeddings = 32768;
  config.num_key_value_heads = 32;
}

}  // namespace tandem::models::llama_like
