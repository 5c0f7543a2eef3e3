// Qwen3 (Yang et al. 2025), transformers' Qwen3Model: Llama's form with a norm over each head of
// queries and keys, and heads of a width of their own.
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/models/families/llama_like.h"

namespace tandem::models {
namespace {

constexpr PreNormNames names() {
  PreNormNames names = llama_like::kNames;
  names.query_norm = "self_attn.q_norm";
  names.key_norm = "self_attn.k_norm";
  return names;
}

constexpr PreNorm kLayers(names(), llama_like::kForm);

void read_more(const nlohmann::json& json, std::string_view where, ModelConfig& config) {
  llama_like::read_more(json, where, config);
  const auto types = json.find("layer_types");
  if (types == json.end() || types->is_null()) return;
  bool known = types->is_array();
  for (const auto& type : *types) known = known && type == "full_attention";
  if (!known) {
    raise<ConfigError>("{}: layer_types is {}; expected full_attention for every layer", where,
                       types->dump());
  }
}

void set_defaults(ModelConfig& config) {
  llama_like::set_defaults(config);
  config.vocab_size = 151936;
  config.intermediate_size = 22016;
  config.max_position_embeddings = 32768;
  config.num_key_value_heads = 32;
  config.head_size = 128;
}

constexpr Family family() {
  Family family = llama_like::family(
      "qwen3", "Qwen3", kLayers,
      R"({"attention_bias": false, "max_window_layers": 28, "sliding_window": null,
          "use_cache": true, "use_sliding_window": false})");
  family.set_defaults = set_defaults;
  family.read_more = read_more;
  return family;
}

}  // namespace

constinit const Family kQwen3 = family();

}  // namespace tandem::models
