// A family that is not tandem's own, of layers that are not either.
#include "toy/toy_family.h"

#include "tandem/models/encoder/model_config.h"
#include "toy/toy_layers.h"

namespace tandem::toy {
namespace {

using models::ConfigKey;
using models::ModelConfig;

constexpr ConfigKey kKeys[] = {
    {"vocab_size", &ModelConfig::vocab_size},
    {"width", &ModelConfig::hidden_size},
    {"depth", &ModelConfig::num_hidden_layers},
    {"heads", &ModelConfig::num_attention_heads},
    {"inner_width", &ModelConfig::intermediate_size},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings},
    {"pad_token_id", &ModelConfig::pad_token_id},
    {"dropout", &ModelConfig::hidden_dropout_prob},
};

constexpr ToyLayers kLayers;

}  // namespace

constinit const models::Family kToy = {
    .model_type = "toy",
    .class_prefix = "Toy",
    .base_prefix = "toy.",
    .layers = &kLayers,
    .sequence_head = {.dense = "pooler",
                      .output = "classifier",
                      .activation = kernels::Activation::kTanh,
                      .drops_input = false},
    .pretraining_heads = {},
    .attention_output_dropout = true,
    .positions = nn::Positions::kRows,
    .reads_token_types = false,
    .keys = kKeys,
    .written_defaults = "{}",
    .set_defaults = [](ModelConfig& config) { config.type_vocab_size = 0; },
};

}  // namespace tandem::toy
