// The head of question answering: a start logit and an end logit for every token row (Devlin et al.
// 2019, section 4.2).
#pragma once

#include <cstddef>
#include <memory>

#include "tandem/models/encoder/encoder_model.h"

namespace tandem::question_answering {

// Logits of a row: start, end.
inline constexpr std::size_t kSpanLabels = 2;

// logits [R, 2] = qa_outputs(dropout(hidden)), with the rate qa_dropout of the configuration. For
// EncoderModel's constructor.
std::unique_ptr<models::Head> make_span_head(const models::ModelConfig& config,
                                             nn::ParameterLayout& layout);

}  // namespace tandem::question_answering
