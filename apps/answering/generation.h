// Texts and conversations that a decoder continues: for `tandem generate` and `tandem serve`.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "apps/answering/inference_model.h"
#include "apps/answering/sampling.h"
#include "apps/answering/token_scheduler.h"
#include "tandem/core/thread_pool.h"
#include "tandem/nn/vocabulary_logits.h"
#include "tandem/text/chat/chat_template.h"

namespace tandem::apps {

struct GenerationOptions {
  std::size_t max_new_tokens = 100;
  SamplingOptions sampling;
  std::vector<std::string> stop;            // texts that end the text; they do not belong to it
  std::chrono::milliseconds time_limit{0};  // 0: none
};

struct Generation {
  std::string text;  // without special tokens
  std::vector<std::int32_t> tokens;
  TextEnd end = TextEnd::kLength;  // kEnough: a text of `stop`

  // "stop" or "length", as OpenAI and transformers call it.
  const char* finish_reason() const;
};

// Thread-safe: texts of several threads are computed side by side, which changes no bit.
class Generator {
 public:
  // found: with decoder_families().
  Generator(const FoundModel& found, const Environment& environment,
            const TokenLimits& limits = {});

  // The tokens of a text to continue, with those that the tokenizer puts in front. Throws DataError
  // for a text without tokens, or one that is not UTF-8.
  std::vector<std::int32_t> tokens_of_text(std::string_view prompt) const;
  // The tokens of a conversation, a list of objects with role and content, and the begin of the
  // assistant's turn, by the model's chat template. Throws DataError: the model has none, or it
  // refuses the messages.
  std::vector<std::int32_t> tokens_of_chat(const nlohmann::ordered_json& messages) const;
  bool has_chat_template() const { return !model_.tokenizer().chat_template().empty(); }

  // on_text gets each piece of the text on this thread, as soon as its characters are complete and
  // no stop begins with them. Throws ConfigError when the model has too few positions, and as
  // TokenScheduler::continue_text().
  Generation generate(std::span<const std::int32_t> prompt, const GenerationOptions& options,
                      FunctionRef<void(std::string_view)> on_text,
                      const std::stop_token& cancelled = {});

  const InferenceModel& model() const { return model_; }
  // Tokens of a prompt and its text together.
  std::size_t positions() const { return model_.model().config().max_tokens(); }

 private:
  TokenModel token_model(const FoundModel& found);
  void advance(const nn::PackedBatch& batch, std::span<models::KeyValues* const> past,
               std::span<const std::size_t> rows, std::span<float> logits);

  InferenceModel model_;
  nn::VocabularyLogits output_;
  std::optional<text::ChatTemplate> template_;  // unless the model has none
  std::string template_problem_;                // why its template cannot be used
  std::vector<float> hidden_, last_;            // of the scheduler's thread
  TokenScheduler scheduler_;                    // uses all of the above
};

}  // namespace tandem::apps
