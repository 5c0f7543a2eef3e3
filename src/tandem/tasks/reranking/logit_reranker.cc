#include "tandem/tasks/reranking/logit_reranker.h"

#include "tandem/core/error.h"
#include "tandem/models/heads/sentence_files.h"

namespace tandem::tasks::reranking {
namespace {

// For a model without modules.json, as CrossEncoder of sentence-transformers reads it.
std::optional<models::LogitScore> yes_and_no(const text::Tokenizer& tokenizer) {
  const auto yes = tokenizer.token_id("yes"), no = tokenizer.token_id("no");
  if (!yes || !no) return std::nullopt;
  return models::LogitScore{*yes, *no};
}

LogitReranker reranker_of(models::LogitScoreFiles files, const text::Tokenizer& tokenizer) {
  const text::PairFormat format{.structured = files.messages.structured,
                                .add_generation_prompt = files.messages.add_generation_prompt,
                                .keeps_end = files.messages.restore_suffix};
  auto prompt =
      std::make_shared<text::PairPrompt>(tokenizer, files.prompts.default_prompt(), format);
  return {std::move(files), std::move(prompt)};
}

std::optional<LogitReranker> read_bare(const text::Tokenizer& tokenizer,
                                       models::ModelPrompts prompts) {
  const auto score = yes_and_no(tokenizer);
  if (!score || tokenizer.chat_template().empty()) return std::nullopt;
  try {
    return reranker_of({.score = *score, .prompts = std::move(prompts)}, tokenizer);
  } catch (const DataError&) {  // a template of conversations
    return std::nullopt;
  }
}

}  // namespace

std::optional<LogitReranker> read_logit_reranker(const std::filesystem::path& directory,
                                                 const models::ModelConfig& config,
                                                 const text::Tokenizer& tokenizer) {
  if (config.family->causal_language_head.output.empty()) return std::nullopt;
  if (auto files = models::read_logit_score(directory, config))
    return reranker_of(*std::move(files), tokenizer);
  const bool bare =
      models::has_causal_class(config) && !std::filesystem::exists(directory / "modules.json");
  return bare ? read_bare(tokenizer, models::read_prompts(directory)) : std::nullopt;
}

}  // namespace tandem::tasks::reranking
