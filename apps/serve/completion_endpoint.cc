#include "apps/serve/completion_endpoint.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "apps/answering/chat_messages.h"
#include "apps/serve/openai_forms.h"
#include "apps/serve/request_json.h"
#include "tandem/core/interruption.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kAllThereIs = SIZE_MAX;

// --- texts that one request asks for ---

struct Choice {
  std::vector<std::int32_t> prompt;
  GenerationOptions options;
};

// n choices of each prompt, one prompt after another. The choices of a prompt differ by their
// seeds.
std::vector<Choice> choices_of(const std::vector<std::vector<std::int32_t>>& prompts,
                               const CompletionFields& fields, std::size_t otherwise,
                               const CompletionLimits& limits) {
  if (prompts.size() * fields.choices > limits.max_texts)
    raise<DataError>("n is {}, with {} prompts more than {} texts of a request", fields.choices,
                     prompts.size(), limits.max_texts);
  std::vector<Choice> choices;
  for (const auto& prompt : prompts) {
    GenerationOptions options = options_for(prompt.size(), fields, otherwise, limits);
    for (std::size_t i = 0; i < fields.choices; ++i) {
      choices.push_back({prompt, options});
      ++options.sampling.seed;
    }
  }
  return choices;
}

// The texts of all choices, computed side by side. on_text is called by several threads, by one at
// a time.
class Texts {
 public:
  using TakeText = std::function<void(std::size_t choice, std::string_view text)>;

  static std::vector<Generation> make(const TextGenerator& generator,
                                      const std::vector<Choice>& choices, const TakeText& on_text,
                                      const std::stop_token& cancelled) {
    Texts texts(generator, choices, on_text);
    const std::stop_callback stop(cancelled, [&] { texts.stop_.request_stop(); });
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 1; i < choices.size(); ++i)
        threads.emplace_back([&texts, i] { texts.make_one(i); });
      texts.make_one(0);
    }
    if (texts.error_) std::rethrow_exception(texts.error_);
    return std::move(texts.made_);
  }

 private:
  Texts(const TextGenerator& generator, const std::vector<Choice>& choices, const TakeText& on_text)
      : generator_(generator), choices_(choices), on_text_(on_text), made_(choices.size()) {}

  // A failure ends the other texts.
  void make_one(std::size_t i) noexcept {
    try {
      const auto on_text = [&](std::string_view text) {
        const std::lock_guard lock(mutex_);
        on_text_(i, text);
      };
      made_[i] =
          generator_.generate(choices_[i].prompt, choices_[i].options, on_text, stop_.get_token());
      if (made_[i].end == TextEnd::kTime && made_[i].tokens.empty())
        throw StatusError(503, fmt::format("the text was not begun within {} s; try again later",
                                           choices_[i].options.time_limit.count() / 1000.0));
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      stop_.request_stop();
    }
  }

  const TextGenerator& generator_;
  const std::vector<Choice>& choices_;
  const TakeText& on_text_;
  std::vector<Generation> made_;
  std::mutex mutex_;
  std::exception_ptr error_;
  std::stop_source stop_;
};

// --- OpenAI ---

// How answers to texts and to conversations differ.
struct Form {
  const char* input;  // field of the request
  const char* id_prefix;
  const char* object;
  const char* chunk_object;
  std::size_t tokens_otherwise;  // without max_tokens
  bool chat = false;
};

constexpr Form kText = {"prompt", "cmpl-", "text_completion", "text_completion", 16, false};
constexpr Form kChat = {"messages",  "chatcmpl-", "chat.completion", "chat.completion.chunk",
                        kAllThereIs, true};

std::string random_id(const char* prefix) {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, random(), random(), random());
}

ordered_json head_of(const Form& form, const char* object, const std::string& model) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"id", random_id(form.id_prefix)},
          {"object", object},
          {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
          {"model", model}};
}

std::vector<std::vector<std::int32_t>> prompts_in(const json& body, const Form& form,
                                                  const TextGenerator& generator,
                                                  const CompletionLimits& limits) {
  if (form.chat) return {generator.tokens_of_chat(chat_messages(body["messages"], "messages"))};
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& prompt : prompts_of(body["prompt"], "prompt", limits.max_texts))
    prompts.push_back(generator.tokens_of_text(prompt));
  return prompts;
}

ordered_json choice_json(const Form& form, std::size_t index, const Generation& made) {
  ordered_json choice = {{"index", index}};
  if (form.chat) {
    choice["message"] = {{"role", "assistant"}, {"content", made.text}};
  } else {
    choice["text"] = made.text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = made.finish_reason();
  return choice;
}

ordered_json usage_json(const std::vector<Choice>& choices, const std::vector<Generation>& made,
                        std::size_t choices_of_a_prompt) {
  std::size_t prompt = 0, completion = 0;
  for (std::size_t i = 0; i < choices.size(); i += choices_of_a_prompt)
    prompt += choices[i].prompt.size();
  for (const Generation& text : made) completion += text.tokens.size();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion}};
}

// The chunks of a stream.
class Chunks {
 public:
  Chunks(const Form& form, const std::string& model, bool include_usage, const SendPiece& send)
      : form_(form),
        head_(head_of(form, form.chunk_object, model)),
        include_usage_(include_usage),
        send_(send) {}

  void begin(std::size_t choice) const {
    if (form_.chat) put(choice, {{"role", "assistant"}, {"content", ""}}, nullptr);
  }
  void text(std::size_t choice, std::string_view text) const {
    if (form_.chat) {
      put(choice, {{"content", text}}, nullptr);
    } else {
      put(choice, text, nullptr);
    }
  }
  void end(std::size_t choice, const char* finish_reason) const {
    put(choice, form_.chat ? ordered_json::object() : ordered_json(""), finish_reason);
  }
  void usage(const ordered_json& usage) const {
    ordered_json chunk = head_;
    chunk["choices"] = ordered_json::array();
    chunk["usage"] = usage;
    event(python_json(chunk));
  }
  void event(const std::string& data) const { send_(fmt::format("data: {}\n\n", data)); }

 private:
  void put(std::size_t index, const ordered_json& piece, const ordered_json& finish_reason) const {
    ordered_json chunk = head_;
    chunk["choices"] = ordered_json::array({{{"index", index},
                                             {form_.chat ? "delta" : "text", piece},
                                             {"logprobs", nullptr},
                                             {"finish_reason", finish_reason}}});
    if (include_usage_) chunk["usage"] = nullptr;
    event(python_json(chunk));
  }

  const Form& form_;
  ordered_json head_;
  bool include_usage_;
  const SendPiece& send_;
};

ordered_json completion_error(int status, const std::string& message) {
  const std::vector<const char*> names = openai_field_names();
  return openai_error(status, message, names);
}

ordered_json complete(const json& body, const Form& form, const std::string& model,
                      const CompletionLimits& limits, const TextGenerator& generator,
                      const std::stop_token& cancelled) {
  const CompletionFields fields = openai_fields(body, form.input, limits);
  const std::vector<Choice> choices =
      choices_of(prompts_in(body, form, generator, limits), fields, form.tokens_otherwise, limits);
  const std::vector<Generation> made = Texts::make(
      generator, choices, [](std::size_t, std::string_view) {}, cancelled);
  ordered_json answer = head_of(form, form.object, model);
  answer["choices"] = ordered_json::array();
  for (std::size_t i = 0; i < made.size(); ++i)
    answer["choices"].push_back(choice_json(form, i, made[i]));
  answer["usage"] = usage_json(choices, made, fields.choices);
  return answer;
}

void send_chunks(const Chunks& chunks, const std::vector<Choice>& choices,
                 const CompletionFields& fields, const TextGenerator& generator,
                 const std::stop_token& cancelled) {
  for (std::size_t i = 0; i < choices.size(); ++i) chunks.begin(i);
  const std::vector<Generation> made = Texts::make(
      generator, choices,
      [&](std::size_t choice, std::string_view text) { chunks.text(choice, text); }, cancelled);
  for (std::size_t i = 0; i < made.size(); ++i) chunks.end(i, made[i].finish_reason());
  if (fields.include_usage) chunks.usage(usage_json(choices, made, fields.choices));
}

// Bad requests are refused before the stream begins. A later failure is an event.
StreamBody stream(const json& body, const Form& form, const std::string& model,
                  const CompletionLimits& limits, const TextGenerator& generator) {
  const CompletionFields fields = openai_fields(body, form.input, limits);
  if (!fields.stream) return nullptr;
  const std::vector<Choice> choices =
      choices_of(prompts_in(body, form, generator, limits), fields, form.tokens_otherwise, limits);
  return [=, &form](const SendPiece& send, const std::stop_token& cancelled) {
    const Chunks chunks(form, model, fields.include_usage, send);
    try {
      send_chunks(chunks, choices, fields, generator, cancelled);
      chunks.event("[DONE]");
    } catch (const Interrupted&) {
      throw;
    } catch (const StatusError& failure) {
      chunks.event(python_json(completion_error(failure.status(), failure.what())));
    } catch (const std::exception& failure) {
      chunks.event(python_json(completion_error(500, failure.what())));
    }
  };
}

Route route_of(const char* path, const Form& form, const char* example, const std::string& model,
               const CompletionLimits& limits, const TextGenerator& generator) {
  return {.path = path,
          .key = form.input,
          .example = example,
          .answer =
              [=, &form](const json& body, const std::stop_token& cancelled) {
                return complete(body, form, model, limits, generator, cancelled);
              },
          .error = completion_error,
          .stream = [=, &form](
                        const json& body) { return stream(body, form, model, limits, generator); }};
}

// --- text-generation-inference ---

ordered_json continue_inputs(const json& body, const CompletionLimits& limits,
                             const TextGenerator& generator, const std::stop_token& cancelled) {
  constexpr std::size_t kTokens = 100;
  const CompletionFields fields = inference_fields(body);
  const auto texts = prompts_of(body["inputs"], "inputs", limits.max_texts);
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& text : texts) prompts.push_back(generator.tokens_of_text(text));
  const std::vector<Generation> made = Texts::make(
      generator, choices_of(prompts, fields, kTokens, limits), [](std::size_t, std::string_view) {},
      cancelled);
  ordered_json results = ordered_json::array();
  for (std::size_t i = 0; i < made.size(); ++i)
    results.push_back({{"generated_text", (fields.full_text ? texts[i] : "") + made[i].text}});
  return results;
}

}  // namespace

Endpoint completion_endpoint(const std::string& model, const CompletionLimits& limits,
                             ordered_json info, TextGenerator generator) {
  const auto answer = [=](const json& body, const std::stop_token& cancelled) {
    return continue_inputs(body, limits, generator, cancelled);
  };
  return {.task = "text-generation",
          .example = R"({"inputs": "a text"})",
          .info = std::move(info),
          .answer = answer,
          .routes = {route_of("/v1/completions", kText, R"({"prompt": "a text"})", model, limits,
                              generator),
                     route_of("/v1/chat/completions", kChat,
                              R"({"messages": [{"role": "user", "content": "a text"}]})", model,
                              limits, generator)},
          .documents = openai_models(model)};
}

}  // namespace tandem::apps
