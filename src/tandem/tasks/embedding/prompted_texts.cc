#include "tandem/tasks/embedding/prompted_texts.h"

#include <utility>

namespace tandem::tasks::embedding {

void PromptedTexts::add(const std::string& prompt, std::string_view text) {
  if (runs_.empty() || runs_.back().prompt != prompt) runs_.push_back({prompt});
  ++runs_.back().texts;
  views_.push_back(prompt.empty() ? text : joined_.emplace_back(prompt).append(text));
}

void PromptedTexts::leave_out_prompts(const text::Tokenizer& tokenizer,
                                      text_classification::TextFeatures& features) const {
  std::vector<std::uint32_t> tokens;
  tokens.reserve(size());
  for (const Run& run : runs_) {
    const std::size_t own =
        text_classification::num_prompt_tokens(tokenizer, run.prompt, features.max_seq_length());
    tokens.insert(tokens.end(), run.texts, static_cast<std::uint32_t>(own));
  }
  features.set_unpooled_tokens(std::move(tokens));
}

}  // namespace tandem::tasks::embedding
