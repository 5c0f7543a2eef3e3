// Parts that other families took over from BERT.
#pragma once

#include <array>
#include <cstddef>

#include "tandem/models/encoder/family.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/layers/post_norm/post_norm.h"

namespace tandem::models {

inline constexpr PostNorm kBertLayers({.layers = "encoder.layer.",
                                       .query = "attention.self.query",
                                       .key = "attention.self.key",
                                       .value = "attention.self.value",
                                       .attention_output = "attention.output.dense",
                                       .attention_norm = "attention.output.LayerNorm",
                                       .intermediate = "intermediate.dense",
                                       .output = "output.dense",
                                       .output_norm = "output.LayerNorm"});

inline constexpr std::array kBertKeys = {
    ConfigKey{"vocab_size", &ModelConfig::vocab_size},
    ConfigKey{"hidden_size", &ModelConfig::hidden_size},
    ConfigKey{"num_hidden_layers", &ModelConfig::num_hidden_layers},
    ConfigKey{"num_attention_heads", &ModelConfig::num_attention_heads},
    ConfigKey{"intermediate_size", &ModelConfig::intermediate_size},
    ConfigKey{"max_position_embeddings", &ModelConfig::max_position_embeddings},
    ConfigKey{"type_vocab_size", &ModelConfig::type_vocab_size},
    ConfigKey{"pad_token_id", &ModelConfig::pad_token_id},
    ConfigKey{"hidden_act", &ModelConfig::hidden_act},
    ConfigKey{"hidden_dropout_prob", &ModelConfig::hidden_dropout_prob},
    ConfigKey{"attention_probs_dropout_prob", &ModelConfig::attention_probs_dropout_prob},
    ConfigKey{"layer_norm_eps", &ModelConfig::layer_norm_eps},
    ConfigKey{"initializer_range", &ModelConfig::initializer_range},
    ConfigKey{"classifier_dropout", &ModelConfig::classifier_dropout},
};

}  // namespace tandem::models
