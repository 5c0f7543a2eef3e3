// BERT (Devlin et al. 2019), transformers' BertModel.
#include "tandem/models/family.h"
#include "tandem/models/model_config.h"

namespace tandem::models {
namespace {

constexpr ConfigKey kKeys[] = {
    {"vocab_size", &ModelConfig::vocab_size},
    {"hidden_size", &ModelConfig::hidden_size},
    {"num_hidden_layers", &ModelConfig::num_hidden_layers},
    {"num_attention_heads", &ModelConfig::num_attention_heads},
    {"intermediate_size", &ModelConfig::intermediate_size},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings},
    {"type_vocab_size", &ModelConfig::type_vocab_size},
    {"pad_token_id", &ModelConfig::pad_token_id},
    {"hidden_act", &ModelConfig::hidden_act},
    {"hidden_dropout_prob", &ModelConfig::hidden_dropout_prob},
    {"attention_probs_dropout_prob", &ModelConfig::attention_probs_dropout_prob},
    {"layer_norm_eps", &ModelConfig::layer_norm_eps},
    {"initializer_range", &ModelConfig::initializer_range},
    {"classifier_dropout", &ModelConfig::classifier_dropout},
};

constexpr std::string_view kPretrainingHeads[] = {"cls.", "vocab_"};

}  // namespace

constinit const Family kBert = {
    .model_type = "bert",
    .class_prefix = "Bert",
    .base_prefix = "bert.",
    .layer = {.layers = "encoder.layer.",
              .query = "attention.self.query",
              .key = "attention.self.key",
              .value = "attention.self.value",
              .attention_output = "attention.output.dense",
              .attention_norm = "attention.output.LayerNorm",
              .intermediate = "intermediate.dense",
              .output = "output.dense",
              .output_norm = "output.LayerNorm"},
    .sequence_head = {.dense = "bert.pooler.dense",
                      .output = "classifier",
                      .activation = kernels::Activation::kTanh,
                      .drops_input = false},
    .pretraining_heads = kPretrainingHeads,
    .attention_output_dropout = true,
    .keys = kKeys,
    .written_defaults = R"({"position_embedding_type": "absolute", "use_cache": true})",
    .set_defaults = [](ModelConfig&) {},
};

}  // namespace tandem::models
