// GPT-2 (Radford et al. 2019), transformers' GPT2Model: LayerNorm in front, a table of positions,
// and linear layers that are Conv1D: their weights are [in, out].
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/family.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/layers/pre_norm/pre_norm.h"

namespace tandem::models {
namespace {

constexpr ConfigKey kKeys[] = {
    {"vocab_size", &ModelConfig::vocab_size},
    {"n_embd", &ModelConfig::hidden_size},
    {"n_layer", &ModelConfig::num_hidden_layers},
    {"n_head", &ModelConfig::num_attention_heads},
    {"n_positions", &ModelConfig::max_position_embeddings},
    {"activation_function", &ModelConfig::hidden_act},
    {"embd_pdrop", &ModelConfig::embedding_dropout},
    {"attn_pdrop", &ModelConfig::attention_probs_dropout_prob},
    {"resid_pdrop", &ModelConfig::hidden_dropout_prob},
    {"layer_norm_epsilon", &ModelConfig::layer_norm_eps},
    {"initializer_range", &ModelConfig::initializer_range},
};

constexpr PreNorm kLayers({.layers = "h.",
                           .attention_norm = "ln_1",
                           .qkv = {"attn.c_attn"},
                           .attention_output = "attn.c_proj",
                           .feed_forward_norm = "ln_2",
                           .up = {"mlp.c_fc"},
                           .down = "mlp.c_proj",
                           .final_norm = "ln_f"},
                          {.first_norm = true,
                           .causal = true,
                           .rotary = false,
                           .gated = false,
                           .drops_residuals = true,
                           .transposed_weights = true});

constexpr std::string_view kPretrainingHeads[] = {"lm_head."};
constexpr std::string_view kBuffers[] = {".attn.bias", ".attn.masked_bias"};

// n_inner; null: four times the hidden size.
void read_more(const nlohmann::json& json, std::string_view where, ModelConfig& config) {
  config.intermediate_size = 4 * config.hidden_size;
  const auto inner = json.find("n_inner");
  if (inner == json.end() || inner->is_null()) return;
  if (!inner->is_number_unsigned() || *inner == 0)
    raise<ConfigError>("{}: n_inner is {}; expected null or a positive integer", where,
                       inner->dump());
  config.intermediate_size = inner->get<std::size_t>();
}

void write_more(const ModelConfig& config, nlohmann::ordered_json& json) {
  if (config.intermediate_size != 4 * config.hidden_size)
    json["n_inner"] = config.intermediate_size;
  if (!config.tie_word_embeddings) json["tie_word_embeddings"] = false;
}

// GPT2PreTrainedModel._init_weights: what writes into the residual stream is drawn again, narrower
// the more layers there are.
double second_deviation(const ModelConfig& config, const nn::ParameterSpec& parameter) {
  if (!parameter.name.ends_with("c_proj.weight")) return 0;
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
}

}  // namespace

constinit const Family kGpt2 = {
    .model_type = "gpt2",
    .class_prefix = "GPT2",
    .base_prefix = "transformer.",
    .layers = &kLayers,
    .embeddings = {.prefix = "", .word = "wte", .position = "wpe", .norm = ""},
    .score_head = {.output = "score"},
    .causal_language_head = {.output = "lm_head", .class_suffix = "LMHeadModel"},
    .construction = {.normal_weights = true},
    .pretraining_heads = kPretrainingHeads,
    .buffers = kBuffers,
    .attention_output_dropout = true,
    .positions = nn::Positions::kRows,
    .spaces_words = false,
    .reads_token_types = false,
    .keys = kKeys,
    .written_defaults = R"({"bos_token_id": 50256, "eos_token_id": 50256, "n_inner": null,
                            "reorder_and_upcast_attn": false,
                            "scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true,
                            "summary_activation": null, "summary_first_dropout": 0.1,
                            "summary_proj_to_labels": true, "summary_type": "cls_index",
                            "summary_use_proj": true, "use_cache": true})",
    .set_defaults =
        [](ModelConfig& config) {
          config.vocab_size = 50257;
          config.max_position_embeddings = 1024;
          config.type_vocab_size = 0;
          config.pad_token_id = -1;
          config.hidden_act = kernels::Activation::kGeluNew;
          config.embedding_dropout = 0.1;
          config.layer_norm_eps = 1e-5;
        },
    .read_more = read_more,
    .write_more = write_more,
    .second_deviation = second_deviation,
};

}  // namespace tandem::models
