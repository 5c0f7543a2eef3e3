// Qwen2 and Qwen2.5 (Yang et al. 2024), transformers' Qwen2Model: Llama's form with biases of
// queries, keys and values.
#include "tandem/core/json.h"
#include "tandem/models/families/llama_like.h"

namespace tandem::models {
namespace {

constexpr PreNormForm form() {
  PreNormForm form = llama_like::kForm;
  form.qkv_bias = true;
  return form;
}

constexpr PreNorm kLayers(llama_like::kNames, form());

// The class has no head_dim of its own, but reads one.
void write_more(const ModelConfig& config, nlohmann::ordered_json& json) {
  llama_like::write_more(config, json);
  if (config.head_size == 0) json.erase("head_dim");
}

constexpr Family family() {
  Family family =
      llama_like::family("qwen2", "Qwen2", kLayers,
                         R"({"max_window_layers": 28, "sliding_window": null, "use_cache": true,
          "use_sliding_window": false})");
  family.set_defaults = llama_like::set_defaults_of_qwen;
  family.write_more = write_more;
  return family;
}

}  // namespace

constinit const Family kQwen2 = family();

}  // namespace tandem::models
