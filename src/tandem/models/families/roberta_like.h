// RoBERTa under any name: BERT's layers. Positions are counted from behind the padding token, and
// texts come without token types.
#pragma once

#include "tandem/models/families/bert_like.h"

namespace tandem::models {

inline constexpr MaskedLanguageHeadParts kLmHead = {.dense = "lm_head.dense",
                                                    .norm = "lm_head.layer_norm",
                                                    .output = "lm_head.decoder",
                                                    .bias = "lm_head.bias",
                                                    .bias_first = true,
                                                    .activation = kernels::Activation::kGelu};

inline constexpr std::string_view kLanguageModelHeads[] = {"lm_head."};

constexpr Family roberta_like(std::string_view model_type, std::string_view class_prefix,
                              void (*set_defaults)(ModelConfig&)) {
  return {.model_type = model_type,
          .class_prefix = class_prefix,
          .base_prefix = "roberta.",
          .layers = &kBertLayers,
          .sequence_head = {.dense = "classifier.dense",
                            .output = "classifier.out_proj",
                            .activation = kernels::Activation::kTanh,
                            .drops_input = true},
          .masked_language_head = kLmHead,
          .construction = {.positions_twice = true, .output_bias = true},
          .pretraining_heads = kLanguageModelHeads,
          .attention_output_dropout = true,
          .positions = nn::Positions::kTokens,
          .reads_token_types = false,
          .keys = kBertKeys,
          .written_defaults = R"({"bos_token_id": 0, "eos_token_id": 2,
                                  "position_embedding_type": "absolute", "use_cache": true})",
          .set_defaults = set_defaults};
}

}  // namespace tandem::models
