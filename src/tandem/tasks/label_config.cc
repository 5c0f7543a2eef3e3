#include "tandem/tasks/label_config.h"

#include <fmt/format.h>

#include "tandem/core/json.h"
#include "tandem/models/heads/score_head.h"

namespace tandem::tasks {

bool are_default_names(std::span<const std::string> names) {
  for (std::size_t id = 0; id < names.size(); ++id) {
    if (names[id] != fmt::format("LABEL_{}", id)) return false;
  }
  return true;
}

void set_finetuning_task(models::ModelConfig& config, const std::string& task) {
  auto json = parse_ordered_json(config.source);
  if (task.empty()) {
    json.erase("finetuning_task");
  } else {
    json["finetuning_task"] = task;
  }
  config.source = json.dump();
}

text::SequenceTemplate label_frame(const text::Tokenizer& tokenizer, std::int32_t ignored_end,
                                   bool pair) {
  text::SequenceTemplate frame = pair ? tokenizer.pair_template() : tokenizer.text_template();
  if (frame.sep_id == ignored_end) frame.keeps_end = false;
  return frame;
}

std::string complete_padding_token(models::ModelConfig& config, const text::Tokenizer& tokenizer) {
  if (!models::has_score_head(config) || models::padding_token(config)) return "";
  const auto own = tokenizer.pad_token_id();
  const auto token = own ? own : tokenizer.eos_token_id();
  if (!token) {
    return "neither config.json nor the tokenizer has a padding token: transformers reads the "
           "saved "
           "model, but computes one text at a time; name a pad_token in tokenizer_config.json";
  }
  if (static_cast<std::size_t>(*token) < config.vocab_size)
    models::set_padding_token(config, *token);
  if (own) return "";
  return fmt::format(
      "the tokenizer has no padding token: config.json gets the end of a text, '{}', as "
      "pad_token_id",
      tokenizer.eos_token());
}

}  // namespace tandem::tasks
