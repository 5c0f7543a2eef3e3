// The head of decoders for whole texts: the logits of the last token of each sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "tandem/models/encoder/head.h"

namespace tandem::models {

// Whether the family has this head for texts.
inline bool has_score_head(const ModelConfig& config) {
  return !config.family->score_head.output.empty();
}

// The head of …ForSequenceClassification of such a family. Logits are [sequences, num_labels] =
// the last row of each sequence · output weightᵀ, without a bias.
// Source: transformers/modeling_layers.py, GenericForSequenceClassification.
std::unique_ptr<Head> make_score_head(std::size_t num_labels, const ModelConfig& config,
                                      nn::ParameterLayout& layout);

// pad_token_id of config.json.
std::optional<std::int32_t> padding_token(const ModelConfig& config);
// The same for a family with this head, whose class reads the last token that is another one. Other
// families and configs without it: −1.
std::int32_t ignored_end(const ModelConfig& config);
// Writes it into config.json; its row of the embeddings then gets no gradient, where the family's
// class has such a row.
void set_padding_token(ModelConfig& config, std::int32_t token);

}  // namespace tandem::models
