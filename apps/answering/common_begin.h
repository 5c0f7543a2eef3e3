// Sequences that begin alike, as the pairs of one query do, through a decoder: a row depends on the
// rows before it alone, so the common ones are computed once.
#pragma once

#include <cstddef>
#include <vector>

#include "apps/answering/inference_model.h"
#include "tandem/tasks/token_sequences.h"

namespace tandem::apps {

// How many tokens all sequences begin with, less than the shortest one has.
std::size_t common_begin(const tasks::TokenSequences& sequences);

// Whether logits_behind() is worth its keys and values: the begin is an eighth of the longest
// sequence at least, and that has at most 4,096 tokens.
bool saves_time(std::size_t begin, const tasks::TokenSequences& sequences);

// InferenceModel::logits_of() bit for bit, of a decoder whose head has logits for each sequence.
// `begin`: common_begin(), at least 1. One thread at a time, and not beside logits_of().
std::vector<float> logits_behind(InferenceModel& model, const tasks::TokenSequences& sequences,
                                 std::size_t begin);

}  // namespace tandem::apps
