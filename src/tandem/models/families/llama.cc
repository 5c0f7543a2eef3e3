// Llama (Touvron et al. 2023), transformers' LlamaModel: also SmolLM2, TinyLlama and Llama 3.
#include "tandem/models/families/llama_like.h"

namespace tandem::models {
namespace {

constexpr PreNorm kLayers(llama_like::kNames, llama_like::kForm);

}  // namespace

constinit const Family kLlama = {
    .model_type = "llama",
    .class_prefix = "Llama",
    .base_prefix = "model.",
    .layers = &kLayers,
    .embeddings = {.prefix = "", .word = "embed_tokens", .norm = ""},
    .bias = nn::Bias::kNo,
    .causal_language_head = {.output = "lm_head"},
    .pretraining_heads = llama_like::kPretrainingHeads,
    .buffers = llama_like::kBuffers,
    .attention_output_dropout = false,
    .positions = nn::Positions::kNone,
    .spaces_words = false,
    .reads_token_types = false,
    .keys = llama_like::kKeys,
    .written_defaults = R"({"attention_bias": false, "bos_token_id": 1, "eos_token_id": 2,
                            "mlp_bias": false, "pretraining_tp": 1, "use_cache": true})",
    .set_defaults = llama_like::set_defaults,
    .read_more = llama_like::read_more,
    .write_more = llama_like::write_more,
};

}  // namespace tandem::models
