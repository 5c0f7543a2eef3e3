// Parts that the families of Llama's form share: RMSNorm, rotary positions, gated silu.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "tandem/models/encoder/family.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/layers/pre_norm/pre_norm.h"

namespace tandem::models::llama_like {

// The names of the layers, without norms of heads.
inline constexpr PreNormNames kNames = {
    .layers = "layers.",
    .attention_norm = "input_layernorm",
    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    .attention_output = "self_attn.o_proj",
    .feed_forward_norm = "post_attention_layernorm",
    .up = {"mlp.gate_proj", "mlp.up_proj"},
    .down = "mlp.down_proj",
    .final_norm = "norm"};
inline constexpr PreNormForm kForm = {
    .first_norm = true, .root_mean_square = true, .causal = true, .norms_last = true};

inline constexpr ConfigKey kKeys[] = {
    {"vocab_size", &ModelConfig::vocab_size},
    {"hidden_size", &ModelConfig::hidden_size},
    {"num_hidden_layers", &ModelConfig::num_hidden_layers},
    {"num_attention_heads", &ModelConfig::num_attention_heads},
    {"num_key_value_heads", &ModelConfig::num_key_value_heads},
    {"head_dim", &ModelConfig::head_size},
    {"intermediate_size", &ModelConfig::intermediate_size},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings},
    {"pad_token_id", &ModelConfig::pad_token_id},
    {"hidden_act", &ModelConfig::hidden_act},
    {"attention_dropout", &ModelConfig::attention_probs_dropout_prob},
    {"rms_norm_eps", &ModelConfig::layer_norm_eps},
    {"initializer_range", &ModelConfig::initializer_range},
};

inline constexpr std::string_view kPretrainingHeads[] = {"lm_head."};
inline constexpr std::string_view kBuffers[] = {"rotary_emb.inv_freq"};

// rope_theta, and rope_scaling or the rope_parameters of transformers 5; refuses layer_types that
// do not read the whole text.
void read_more(const nlohmann::json& json, std::string_view where, ModelConfig& config);
void write_more(const ModelConfig& config, nlohmann::ordered_json& json);

// The defaults of these classes, and those of Qwen2 and Qwen3, which differ.
void set_defaults(ModelConfig& config);
void set_defaults_of_qwen(ModelConfig& config);

// A family of this form with the defaults and keys of all of them. `layers` must outlive it.
constexpr Family family(std::string_view model_type, std::string_view class_prefix,
                        const LayerKind& layers, const char* written_defaults) {
  return {.model_type = model_type,
          .class_prefix = class_prefix,
          .base_prefix = "model.",
          .layers = &layers,
          .embeddings = {.prefix = "", .word = "embed_tokens", .norm = ""},
          .bias = nn::Bias::kNo,
          .score_head = {.output = "score"},
          .causal_language_head = {.output = "lm_head"},
          .pretraining_heads = kPretrainingHeads,
          .buffers = kBuffers,
          .attention_output_dropout = false,
          .positions = nn::Positions::kNone,
          .spaces_words = false,
          .reads_token_types = false,
          .keys = kKeys,
          .written_defaults = written_defaults,
          .set_defaults = set_defaults,
          .read_more = read_more,
          .write_more = write_more};
}

}  // namespace tandem::models::llama_like
