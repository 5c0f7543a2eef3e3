// Decoders that score pairs by their output layer: sentence-transformers' module LogitScore behind
// a …ForCausalLM, as Qwen3-Reranker has it.
// Source: sentence_transformers/cross_encoder/modules/logit_score.py of version 6.2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tandem/models/encoder/head.h"
#include "tandem/models/heads/sentence_files.h"

namespace tandem::models {

// The score of a text is the logit of a token behind it, less that of another one.
struct LogitScore {
  std::int32_t true_token = 0;              // "yes"
  std::optional<std::int32_t> false_token;  // "no"; nothing: only the logit of the first one
};

// How a pair becomes messages for the chat template.
struct PairMessages {
  bool structured = false;  // the content of a message is a list of parts, not a text
  bool add_generation_prompt = false;
  bool restore_suffix = true;  // a text that is cut keeps the tokens behind the passage
};

struct LogitScoreFiles {
  LogitScore score;
  PairMessages messages = {};
  ModelPrompts prompts = {};
};

// The LogitScore that the directory's modules.json names; nothing without one. Throws DataError
// that names the file: other modules beside it, a token that the model does not have, pairs that
// are not messages, settings of the template that tandem does not have.
std::optional<LogitScoreFiles> read_logit_score(const std::filesystem::path& directory,
                                                const ModelConfig& config);

// Writes modules.json and the files of its modules, in the form of sentence-transformers 6.
void write_logit_score(const std::filesystem::path& directory, const LogitScoreFiles& files,
                       DenseActivation activation);

// The head: logits are [sequences, 1], from the last row of each sequence and the tokens' rows of
// the output matrix, which is the table of word embeddings where tie_word_embeddings is true. Sums
// run over columns in f64. Throws ConfigError for a family without …ForCausalLM.
std::unique_ptr<Head> make_logit_score_head(const LogitScore& score, const ModelConfig& config,
                                            nn::ParameterLayout& layout);

}  // namespace tandem::models
