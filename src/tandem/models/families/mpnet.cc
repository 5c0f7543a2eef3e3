// MPNet (Song et al. 2020), transformers' MPNetModel: BERT's layers with a bias of the attention
// scores by distance, which all layers share; positions are RoBERTa's, and texts come without token
// types.
#include "tandem/models/families/roberta_like.h"

namespace tandem::models {

namespace {

// pad_token_id is not among them: the code of transformers has 1, whatever the file has.
constexpr ConfigKey kKeys[] = {
    {"vocab_size", &ModelConfig::vocab_size},
    {"hidden_size", &ModelConfig::hidden_size},
    {"num_hidden_layers", &ModelConfig::num_hidden_layers},
    {"num_attention_heads", &ModelConfig::num_attention_heads},
    {"intermediate_size", &ModelConfig::intermediate_size},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings},
    {"hidden_act", &ModelConfig::hidden_act},
    {"hidden_dropout_prob", &ModelConfig::hidden_dropout_prob},
    {"attention_probs_dropout_prob", &ModelConfig::attention_probs_dropout_prob},
    {"layer_norm_eps", &ModelConfig::layer_norm_eps},
    {"initializer_range", &ModelConfig::initializer_range},
};

constexpr PostNorm kLayers({.layers = "encoder.layer.",
                            .query = "attention.attn.q",
                            .key = "attention.attn.k",
                            .value = "attention.attn.v",
                            .attention_output = "attention.attn.o",
                            .attention_norm = "attention.LayerNorm",
                            .intermediate = "intermediate.dense",
                            .output = "output.dense",
                            .output_norm = "output.LayerNorm",
                            .relative_bias = "encoder.relative_attention_bias"});

}  // namespace

constinit const Family kMpnet = {
    .model_type = "mpnet",
    .class_prefix = "MPNet",
    .base_prefix = "mpnet.",
    .layers = &kLayers,
    .sequence_head = {.dense = "classifier.dense",
                      .output = "classifier.out_proj",
                      .activation = kernels::Activation::kTanh,
                      .drops_input = true},
    .masked_language_head = kLmHead,
    .pretraining_heads = kLanguageModelHeads,
    .attention_output_dropout = true,
    .positions = nn::Positions::kTokens,
    .reads_token_types = false,
    .keys = kKeys,
    .written_defaults = R"({"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
                            "relative_attention_num_buckets": 32})",
    .set_defaults =
        [](ModelConfig& config) {
          config.vocab_size = 30527;
          config.type_vocab_size = 0;
          config.pad_token_id = 1;
        },
};

}  // namespace tandem::models
