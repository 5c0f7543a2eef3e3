// Llama (Touvron et al. 2023), transformers' LlamaModel: also SmolLM2, TinyLlama and Llama 3.
#include "tandem/models/families/llama_like.h"

namespace tandem::models {
namespace {

constexpr PreNorm kLayers(llama_like::kNames, llama_like::kForm);

}  // namespace

constinit const Family kLlama =
    llama_like::family("llama", "Llama", kLayers,
                       R"({"attention_bias": false, "bos_token_id": 1, "eos_token_id": 2,
                           "mlp_bias": false, "pretraining_tp": 1, "use_cache": true})");

}  // namespace tandem::models
