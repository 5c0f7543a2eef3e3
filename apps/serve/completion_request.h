// Requests for texts of a decoder in OpenAI's forms, and in that of text-generation-inference.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/answering/generation.h"

namespace tandem::apps {

struct CompletionLimits {
  std::size_t positions = 0;       // of the model: tokens of a prompt and its text
  std::size_t max_new_tokens = 0;  // of a text
  std::size_t max_texts = 32;      // of a request: prompts times n
  std::chrono::milliseconds time_limit{0};
};

// The fields that all forms share.
struct CompletionFields {
  // OpenAI's defaults: a draw among all tokens. Without a seed each request has its own.
  CompletionFields();

  GenerationOptions options;
  std::optional<std::size_t> max_tokens;
  std::size_t choices = 1;  // n
  bool stream = false;
  bool include_usage = false;  // at the end of a stream
  bool full_text = false;      // with the prompt in front; text-generation-inference only
};

// The fields of POST /v1/completions and /v1/chat/completions but `input`, which is prompt or
// messages. Throws DataError that begins with the field's name: an unknown field, a bad value, or
// one that is not supported.
CompletionFields openai_fields(const nlohmann::json& body, const std::string& input,
                               const CompletionLimits& limits);
// "parameters" of text-generation-inference.
CompletionFields inference_fields(const nlohmann::json& body);

// Names of fields, for errors.
std::vector<const char*> openai_field_names();

// "prompt" or "inputs": a text, or a list of them. Throws DataError.
std::vector<std::string> prompts_of(const nlohmann::json& value, const std::string& name,
                                    std::size_t max);

// Options of `fields` for a prompt: max_tokens, else `otherwise`, within the model's positions and
// the limits. Throws DataError when the prompt leaves no room.
GenerationOptions options_for(std::size_t prompt_tokens, const CompletionFields& fields,
                              std::size_t otherwise, const CompletionLimits& limits);

}  // namespace tandem::apps
