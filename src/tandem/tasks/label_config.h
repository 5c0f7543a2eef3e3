// Models with labels for texts: their entries of config.json, and the special tokens around a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tandem/models/encoder/model_config.h"
#include "tandem/text/tokenizer.h"

namespace tandem::tasks {

// LABEL_0, LABEL_1 …: what transformers calls the labels of a model that names none.
bool are_default_names(std::span<const std::string> names);

// Sets finetuning_task, a key that transformers' scripts write and no program reads; empty: removes
// it.
void set_finetuning_task(models::ModelConfig& config, const std::string& task);

// How a model that labels texts reads one, or a pair. `ignored_end`: the model's (score_head.h).
// Throws as Tokenizer::pair_template().
text::SequenceTemplate label_frame(const text::Tokenizer& tokenizer, std::int32_t ignored_end,
                                   bool pair);

// A decoder that labels texts needs pad_token_id in its config.json: transformers computes no batch
// without it. Where it is absent, sets the tokenizer's padding token, or the end of a text where it
// has none. Returns a note for the user, "" without one.
std::string complete_padding_token(models::ModelConfig& config, const text::Tokenizer& tokenizer);

}  // namespace tandem::tasks
