// Qwen3 (Yang et al. 2025), transformers' Qwen3Model: Llama's form with a norm over each head of
// queries and keys, and heads of a width of their own.
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

void set_defaults(ModelConfig& config) {
  llama_like::set_defaults_of_qwen(config);
  config.head_size = 128;
}

constexpr Family family() {
  Family family = llama_like::family(
      "qwen3", "Qwen3", kLayers,
      R"({"attention_bias": false, "max_window_layers": 28, "sliding_window": null,
          "use_cache": true, "use_sliding_window": false})");
  family.set_defaults = set_defaults;
  return family;
}

}  // namespace

constinit const Family kQwen3 = family();

}  // namespace tandem::models
