// The head of ModernBERT's classes for texts, tokens and spans: logits =
// output(dropout(LayerNorm(activation(dense(x))))), with the parts of Family::prediction_head. x is
// the rows themselves, the first row of each text, or the mean of its tokens.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tandem/models/encoder/head.h"

namespace tandem::models {

enum class PredictionInput { kRows, kFirstRows, kMeans };

// Whether the family has this head in place of its others.
inline bool has_prediction_head(const ModelConfig& config) {
  return !config.family->prediction_head.dense.empty();
}

// The rate of the dropout is classifier_dropout.
std::unique_ptr<Head> make_prediction_head(std::string class_suffix, PredictionInput input,
                                           std::size_t num_labels, const ModelConfig& config,
                                           nn::ParameterLayout& layout);

}  // namespace tandem::models
