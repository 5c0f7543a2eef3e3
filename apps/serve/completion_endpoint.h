// Texts and conversations that a decoder continues, in the forms of OpenAI and of
// text-generation-inference.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "apps/answering/generation.h"
#include "apps/serve/completion_request.h"
#include "apps/serve/inference_service.h"

namespace tandem::apps {

// A decoder, as the endpoint uses it: the functions of a Generator, or a test's. Called by several
// threads at once.
struct TextGenerator {
  std::function<std::vector<std::int32_t>(std::string_view)> tokens_of_text;
  std::function<std::vector<std::int32_t>(const nlohmann::ordered_json&)> tokens_of_chat;
  std::function<Generation(std::span<const std::int32_t> prompt, const GenerationOptions& options,
                           FunctionRef<void(std::string_view)> on_text,
                           const std::stop_token& cancelled)>
      generate;
};

// POST /v1/completions: {"prompt": "a text" | ["a", "b"], "max_tokens": 16, …} → {"object":
//   "text_completion", "choices": [{"index": 0, "text": …, "finish_reason": "stop" | "length"}],
//   "usage": {…}, …}.
// POST /v1/chat/completions: {"messages": [{"role": …, "content": …}], …} → {"object":
//   "chat.completion", "choices": [{"message": {"role": "assistant", "content": …}, …}], …}.
//   Both take "stream": true: server-sent events of chunks, and "data: [DONE]" at the end.
// GET /v1/models: the one model.
// POST /: {"inputs": "a text" | ["a", "b"], "parameters": {…}} → [{"generated_text": …}].
//   model: the name in answers.   info: for GET /info.
Endpoint completion_endpoint(const std::string& model, const CompletionLimits& limits,
                             nlohmann::ordered_json info, TextGenerator generator);

}  // namespace tandem::apps
