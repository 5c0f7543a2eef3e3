// ELECTRA (Clark et al. 2020), transformers' ElectraModel, discriminator or generator: BERT's
// layers behind embeddings of their own width.
#include <algorithm>

#include "tandem/models/families/bert_like.h"

namespace tandem::models {
namespace {

constexpr auto kKeys = [] {
  std::array<ConfigKey, kBertKeys.size() + 1> keys = {
      ConfigKey{"embedding_size", &ModelConfig::embedding_size}};
  std::copy(kBertKeys.begin(), kBertKeys.end(), keys.begin() + 1);
  return keys;
}();

constexpr std::string_view kPretrainingHeads[] = {"discriminator_predictions.",
                                                  "generator_predictions.", "generator_lm_head."};

}  // namespace

constinit const Family kElectra = {
    .model_type = "electra",
    .class_prefix = "Electra",
    .base_prefix = "electra.",
    .layers = &kBertLayers,
    // GELU with the error function, whatever hidden_act is.
    .sequence_head = {.dense = "classifier.dense",
                      .output = "classifier.out_proj",
                      .activation = kernels::Activation::kGelu,
                      .drops_input = true},
    // The generator has this head.
    .masked_language_head = {.dense = "generator_predictions.dense",
                             .norm = "generator_predictions.LayerNorm",
                             .output = "generator_lm_head",
                             .bias = "generator_lm_head.bias",
                             .norm_before_dense = true,
                             .activation = kernels::Activation::kGelu},
    .construction = {.output_bias = true},
    .pretraining_heads = kPretrainingHeads,
    .attention_output_dropout = true,
    .positions = nn::Positions::kRows,
    .reads_token_types = true,
    .keys = kKeys,
    .written_defaults = R"({"position_embedding_type": "absolute", "summary_activation": "gelu",
                            "summary_last_dropout": 0.1, "summary_type": "first",
                            "summary_use_proj": true, "use_cache": true})",
    .set_defaults =
        [](ModelConfig& config) {
          config.embedding_size = 128;
          config.hidden_size = 256;
          config.num_attention_heads = 4;
          config.intermediate_size = 1024;
        },
};

}  // namespace tandem::models
