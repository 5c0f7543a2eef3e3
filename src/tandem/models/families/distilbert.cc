// DistilBERT (Sanh et al. 2019), transformers' DistilBertModel: BERT's layers under other names,
// without token types and without dropout behind the attention.
#include "tandem/models/encoder/family.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/layers/post_norm/post_norm.h"

namespace tandem::models {
namespace {

constexpr ConfigKey kKeys[] = {
    {"vocab_size", &ModelConfig::vocab_size},
    {"dim", &ModelConfig::hidden_size},
    {"n_layers", &ModelConfig::num_hidden_layers},
    {"n_heads", &ModelConfig::num_attention_heads},
    {"hidden_dim", &ModelConfig::intermediate_size},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings},
    {"pad_token_id", &ModelConfig::pad_token_id},
    {"activation", &ModelConfig::hidden_act},
    {"dropout", &ModelConfig::hidden_dropout_prob},
    {"attention_dropout", &ModelConfig::attention_probs_dropout_prob},
    {"initializer_range", &ModelConfig::initializer_range},
    {"qa_dropout", &ModelConfig::qa_dropout},
    {"seq_classif_dropout", &ModelConfig::seq_classif_dropout},
    {"sinusoidal_pos_embds", &ModelConfig::sinusoidal_pos_embds},
};

constexpr PostNorm kLayers({.layers = "transformer.layer.",
                            .query = "attention.q_lin",
                            .key = "attention.k_lin",
                            .value = "attention.v_lin",
                            .attention_output = "attention.out_lin",
                            .attention_norm = "sa_layer_norm",
                            .intermediate = "ffn.lin1",
                            .output = "ffn.lin2",
                            .output_norm = "output_layer_norm"});

constexpr std::string_view kPretrainingHeads[] = {"cls.", "vocab_"};

}  // namespace

constinit const Family kDistilBert = {
    .model_type = "distilbert",
    .class_prefix = "DistilBert",
    .base_prefix = "distilbert.",
    .layers = &kLayers,
    .sequence_head = {.dense = "pre_classifier",
                      .output = "classifier",
                      .activation = kernels::Activation::kRelu,
                      .drops_input = false},
    .masked_language_head = {.dense = "vocab_transform",
                             .norm = "vocab_layer_norm",
                             .output = "vocab_projector",
                             .bias = "vocab_projector.bias",
                             .layer_norm_eps = 1e-12},
    .construction = {.output_bias = true},
    .pretraining_heads = kPretrainingHeads,
    .attention_output_dropout = false,
    .positions = nn::Positions::kRows,
    .reads_token_types = true,
    .keys = kKeys,
    .written_defaults = "{}",
    .set_defaults =
        [](ModelConfig& config) {
          config.num_hidden_layers = 6;
          config.type_vocab_size = 0;
          config.qa_dropout = 0.1;
          config.seq_classif_dropout = 0.2;
        },
};

}  // namespace tandem::models
