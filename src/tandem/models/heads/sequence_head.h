// The head of tasks that predict something for a whole text: labels from the first row of each
// sequence (Family::sequence_head), or as the family does it (prediction_head.h, score_head.h).
#pragma once

#include <cstddef>
#include <memory>

#include "tandem/models/encoder/head.h"

namespace tandem::models {

// The head of …ForSequenceClassification. Logits are [sequences, num_labels] =
// output(dropout(activation(dense(dropout?(first rows))))); the two masks are independent, of the
// rate sequence_head_dropout_prob().
std::unique_ptr<Head> make_sequence_head(std::size_t num_labels, const ModelConfig& config,
                                         nn::ParameterLayout& layout);

}  // namespace tandem::models
