// Decoders that score pairs by the logits of two tokens: how they read a pair, and which tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "tandem/models/heads/logit_score.h"
#include "tandem/text/chat/pair_prompt.h"

namespace tandem::tasks::reranking {

struct LogitReranker {
  models::LogitScoreFiles files;  // the default prompt is the instruction of `prompt`
  std::shared_ptr<const text::PairPrompt> prompt;
};

// That of a model: its LogitScore, or for a class …ForCausalLM without modules.json "yes" and "no",
// if the chat template takes pairs. Nothing for other models. Throws DataError: a LogitScore whose
// files or template are not usable.
std::optional<LogitReranker> read_logit_reranker(const std::filesystem::path& directory,
                                                 const models::ModelConfig& config,
                                                 const text::Tokenizer& tokenizer);

}  // namespace tandem::tasks::reranking
