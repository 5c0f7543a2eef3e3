// Texts and conversations: the forms of requests and answers without a model.
#include "apps/serve/completion_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/core/json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";

// Tokens are characters. Says "ab" and the seed's last digit; notes what it was asked.
class CompletionEndpoints : public ::testing::Test {
 protected:
  InferenceService service() {
    return {
        {.model = "a/model", .allowed_hosts = {}},
        completion_endpoint("a/model",
                            {.positions = 100,
                             .max_new_tokens = 60,
                             .max_texts = 4,
                             .time_limit = std::chrono::milliseconds(1500)},
                            {{"chat", true}},
                            {.tokens_of_text =
                                 [](std::string_view text) {
                                   return std::vector<std::int32_t>(text.begin(), text.end());
                                 },
                             .tokens_of_chat =
                                 [this](const nlohmann::ordered_json& messages) {
                                   messages_ = messages;
                                   if (messages[0]["role"] == "robot")
                                     raise<DataError>("the chat template refuses the messages");
                                   return std::vector<std::int32_t>(7);
                                 },
                             .generate = std::bind_front(&CompletionEndpoints::generate, this)})};
  }
  Generation generate(std::span<const std::int32_t> prompt, const GenerationOptions& options,
                      FunctionRef<void(std::string_view)> on_text,
                      const std::stop_token& cancelled) {
    const std::lock_guard lock(mutex_);
    options_ = options;
    if (cancelled.stop_requested()) raise<Interrupted>("given up");
    if (prompt[0] == '!') raise<DataError>("keys take too much");
    if (prompt[0] == '?') return {.text = "", .tokens = {}, .end = TextEnd::kTime};
    on_text("ab");
    const std::string digit = std::to_string(options.sampling.seed % 10);
    on_text(digit);
    return {.text = "ab" + digit, .tokens = {1, 2, 3}, .end = end_};
  }
  HttpResponse send(const std::string& method, const std::string& path, const std::string& body) {
    return service().handle(
        {.method = method, .path = path, .host = "localhost:1", .origin = "", .body = body});
  }
  json answer(const std::string& path, const std::string& body) {
    const HttpResponse response = send("POST", path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  // The data of the events, whose stream must have been begun.
  std::vector<std::string> events(const std::string& path, const std::string& body) {
    const HttpResponse response = send("POST", path, body);
    EXPECT_EQ(response.content_type, "text/event-stream") << response.body;
    std::vector<std::string> found;
    const auto add = [&](std::string_view piece) {
      EXPECT_THAT(std::string(piece), StartsWith("data: "));
      EXPECT_TRUE(piece.ends_with("\n\n"));
      found.emplace_back(piece.substr(6, piece.size() - 8));
    };
    response.stream(add, {});
    return found;
  }
  void expect_error(const std::string& path, const std::string& body, const std::string& message,
                    const json& param, int status = 400) {
    const HttpResponse response = send("POST", path, body);
    EXPECT_EQ(response.status, status) << body;
    const json error = json::parse(response.body)["error"];
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(message));
    EXPECT_EQ(error["param"], param) << message;
    EXPECT_EQ(error["type"], status < 500 ? "invalid_request_error" : "server_error");
  }

  std::mutex mutex_;
  GenerationOptions options_;
  nlohmann::ordered_json messages_;
  TextEnd end_ = TextEnd::kEndToken;
};

TEST_F(CompletionEndpoints, ATextHasOpenAisForm) {
  json found = answer(kText, R"({"prompt": "Hello", "seed": 5, "model": "any"})");
  EXPECT_THAT(found["id"].get<std::string>(), StartsWith("cmpl-"));
  EXPECT_GT(found["created"].get<std::int64_t>(), 1700000000);
  found.erase("id");
  found.erase("created");
  EXPECT_EQ(found, json::parse(R"({"object": "text_completion", "model": "a/model", "choices":
      [{"index": 0, "text": "ab5", "logprobs": null, "finish_reason": "stop"}],
      "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}})"));
  EXPECT_EQ(options_.max_new_tokens, 16u);
  EXPECT_TRUE(options_.sampling.sample);
  EXPECT_EQ(options_.sampling.top_k, 0u);
  EXPECT_EQ(options_.sampling.temperature, 1);
  EXPECT_EQ(options_.time_limit.count(), 1500);
}

TEST_F(CompletionEndpoints, AConversationHasOpenAisForm) {
  end_ = TextEnd::kLength;
  const json found = answer(kChat, R"({"messages": [{"role": "system", "content": null},
      {"role": "user", "content": [{"type": "text", "text": "Who"}, {"type": "text", "text": "?"}],
       "name": "x"}], "seed": 12})");
  EXPECT_THAT(found["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(found["object"], "chat.completion");
  EXPECT_EQ(found["choices"], json::parse(R"([{"index": 0, "message":
      {"role": "assistant", "content": "ab2"}, "logprobs": null, "finish_reason": "length"}])"));
  EXPECT_EQ(found["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(json(messages_), json::parse(R"([{"role": "system", "content": ""},
      {"role": "user", "content": "Who?", "name": "x"}])"));
  EXPECT_EQ(options_.max_new_tokens, 60u);  // of the server
}

TEST_F(CompletionEndpoints, FieldsReachTheGenerator) {
  answer(kText, R"({"prompt": "a", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 7,
      "seed": -1, "stop": ["x", "\n\n"], "user": "me", "echo": false, "logit_bias": {},
      "frequency_penalty": 0.0, "stream": false, "best_of": null})");
  EXPECT_EQ(options_.max_new_tokens, 9u);
  EXPECT_EQ(options_.sampling.temperature, 0.5);
  EXPECT_EQ(options_.sampling.top_p, 0.9);
  EXPECT_EQ(options_.sampling.top_k, 7u);
  EXPECT_EQ(options_.sampling.seed, ~std::uint64_t{0});
  EXPECT_THAT(options_.stop, ElementsAre("x", "\n\n"));
  answer(kChat, R"({"messages": [{"role": "user", "content": "a"}], "temperature": 0,
      "max_completion_tokens": 3, "stop": "x", "top_k": -1, "response_format": {"type": "text"}})");
  EXPECT_FALSE(options_.sampling.sample);
  EXPECT_EQ(options_.max_new_tokens, 3u);
  EXPECT_THAT(options_.stop, ElementsAre("x"));
  // Without a seed each request has its own.
  answer(kText, R"({"prompt": "a"})");
  const std::uint64_t seed = options_.sampling.seed;
  answer(kText, R"({"prompt": "a"})");
  EXPECT_NE(options_.sampling.seed, seed);
}

TEST_F(CompletionEndpoints, PromptsAndChoicesAreNumbered) {
  const json found = answer(kText, R"({"prompt": ["ab", "c"], "n": 2, "seed": 3})");
  std::vector<std::string> texts;
  for (const json& choice : found["choices"]) {
    EXPECT_EQ(choice["index"], texts.size());
    texts.push_back(choice["text"]);
  }
  EXPECT_THAT(texts, ElementsAre("ab3", "ab4", "ab3", "ab4"));
  EXPECT_EQ(found["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(found["usage"]["completion_tokens"], 12);
}

TEST_F(CompletionEndpoints, AStreamHasThePiecesOfTheText) {
  const auto found = events(kChat, R"({"messages": [{"role": "user", "content": "a"}], "seed": 1,
      "stream": true, "stream_options": {"include_usage": true}})");
  ASSERT_EQ(found.size(), 6u);
  std::vector<json> chunks;
  for (std::size_t i = 0; i < 5; ++i) {
    chunks.push_back(json::parse(found[i]));
    EXPECT_EQ(chunks[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(chunks[i]["id"], chunks[0]["id"]);
  }
  EXPECT_EQ(chunks[0]["choices"][0]["delta"],
            json::parse(R"({"role": "assistant", "content": ""})"));
  EXPECT_EQ(chunks[1]["choices"][0]["delta"], json::parse(R"({"content": "ab"})"));
  EXPECT_EQ(chunks[1]["usage"], nullptr);
  EXPECT_EQ(chunks[2]["choices"][0]["finish_reason"], nullptr);
  EXPECT_EQ(chunks[3]["choices"][0], json::parse(R"({"index": 0, "delta": {}, "logprobs": null,
      "finish_reason": "stop"})"));
  EXPECT_EQ(chunks[4]["choices"], json::array());
  EXPECT_EQ(chunks[4]["usage"]["total_tokens"], 10);
  EXPECT_EQ(found[5], "[DONE]");

  const auto text = events(kText, R"({"prompt": "a", "seed": 1, "stream": true})");
  ASSERT_EQ(text.size(), 4u);
  EXPECT_EQ(json::parse(text[0])["choices"][0], json::parse(R"({"index": 0, "text": "ab",
      "logprobs": null, "finish_reason": null})"));
  EXPECT_EQ(json::parse(text[2])["choices"][0]["finish_reason"], "stop");
}

TEST_F(CompletionEndpoints, AFailureInAStreamIsAnEvent) {
  const auto found = events(kText, R"({"prompt": "!", "stream": true})");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(json::parse(found[0])["error"]["message"], "keys take too much");
}

TEST_F(CompletionEndpoints, ErrorsNameTheField) {
  expect_error(kText, "{}", "the body has no 'prompt'; expected", nullptr);
  expect_error(kText, "[", "the body is not JSON", nullptr);
  expect_error(kText, R"({"prompt": 3})", "prompt is 3, expected a text or a list", "prompt");
  expect_error(kText, R"({"prompt": [[1, 2]]})", "prompt[0] is an array, expected a text",
               "prompt");
  expect_error(kText, R"({"prompt": []})", "prompt has 0 texts, expected 1 to 4", "prompt");
  expect_error(kText, R"({"prompt": "a", "max_tokens": 0})", "max_tokens is 0", "max_tokens");
  expect_error(kText, R"({"prompt": "a", "max_tokens": 61})", "at most 60", "max_tokens");
  expect_error(kText, R"({"prompt": "a", "temperature": "hot"})", R"(temperature is "hot")",
               "temperature");
  expect_error(kText, R"({"prompt": "a", "top_p": 1.5})", "a number from 0 to 1", "top_p");
  expect_error(kText, R"({"prompt": "a", "seed": 1.5})", "seed is 1.5, expected an integer",
               "seed");
  expect_error(kText, R"({"prompt": "a", "stop": ["x", 3]})", "stop[1] is 3", "stop");
  expect_error(kText, R"({"prompt": "a", "stop": ""})", "stop is \"\"", "stop");
  expect_error(kText, R"({"prompt": "a", "n": 5})", "n is 5, expected at most 4", "n");
  expect_error(kText, R"({"prompt": ["a", "b"], "n": 3})", "n is 3, with 2 prompts", "n");
  expect_error(kText, R"({"prompt": "a", "stream": 1})", "stream is 1, expected true", "stream");
  expect_error(kText, R"({"prompt": "a", "stream": true, "n": 0})", "n is 0", "n");
  expect_error(kText, R"({"prompt": "a", "stream_options": {"include_usage": true}})",
               "needs \"stream\": true", "stream_options");
  expect_error(kText, R"({"prompt": "a", "logprobs": 3})", "logprobs is 3, expected false",
               "logprobs");
  expect_error(kText, R"({"prompt": "a", "tools": [1]})", "tools is an array", "tools");
  expect_error(kText, R"({"prompt": "a", "colour": 1})", "colour is not a known field", nullptr);
  expect_error(kText, R"({"prompt": "a", "model": 1})", "model is 1, expected a string", "model");
  expect_error(kText, R"({"prompt": ")" + std::string(100, 'x') + R"("})",
               "the prompt has 100 tokens; the model's context has 100", nullptr);
  expect_error(kText, R"({"max_tokens": 11, "prompt": ")" + std::string(90, 'x') + R"("})",
               "more than the model's context of 100; ask for at most 10", "max_tokens");
}

TEST_F(CompletionEndpoints, ErrorsOfMessagesNameThem) {
  expect_error(kChat, R"({"messages": []})", "messages is empty", "messages");
  expect_error(kChat, R"({"messages": "a"})", "messages is of the type string", "messages");
  expect_error(kChat, R"({"messages": ["a"]})", "messages[0] is of the type string", "messages");
  expect_error(kChat, R"({"messages": [{"content": "a"}]})", "messages[0] has no 'role'",
               "messages");
  expect_error(kChat, R"({"messages": [{"role": "user"}]})", "messages[0] has no 'content'",
               "messages");
  expect_error(kChat,
               R"({"messages": [{"role": "user", "content": [{"type": "image_url", "x": 1}]}]})",
               "messages[0].content[0] is not a text", "messages");
  expect_error(kChat, R"({"messages": [{"role": "robot", "content": "a"}]})",
               "the chat template refuses", nullptr);
}

TEST_F(CompletionEndpoints, ATextThatIsNotBegunInTimeIsTheServersFailure) {
  expect_error(kText, R"({"prompt": "?"})", "was not begun within 1.5 s", nullptr, 503);
}

TEST_F(CompletionEndpoints, AnInterruptionIsThrown) {
  std::stop_source stop;
  stop.request_stop();
  const HttpRequest request{.method = "POST",
                            .path = kText,
                            .host = "localhost:1",
                            .origin = "",
                            .body = R"({"prompt": "a"})"};
  EXPECT_THROW(service().handle(request, stop.get_token()), Interrupted);
}

TEST_F(CompletionEndpoints, TheModelIsListed) {
  const json list = json::parse(send("GET", "/v1/models", "").body);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "a/model");
  EXPECT_EQ(json::parse(send("GET", "/v1/models/a/model", "").body), list["data"][0]);
  EXPECT_EQ(send("GET", "/v1/models/other", "").status, 404);
  EXPECT_EQ(send("POST", "/v1/models", "{}").status, 405);
  EXPECT_EQ(send("GET", kChat, "").status, 405);
}

TEST_F(CompletionEndpoints, TheInferenceApisFormContinuesInputs) {
  EXPECT_EQ(answer("/", R"({"inputs": "Hi", "parameters": {"seed": 0}})"),
            json::parse(R"([{"generated_text": "ab0"}])"));
  EXPECT_FALSE(options_.sampling.sample);
  EXPECT_EQ(options_.max_new_tokens, 60u);
  const json found = answer("/models/any", R"({"inputs": ["Hi", "a"], "parameters": {"seed": 4,
      "do_sample": true, "max_new_tokens": 5, "return_full_text": true, "stop": ["x"]}})");
  EXPECT_EQ(found, json::parse(R"([{"generated_text": "Hiab4"}, {"generated_text": "aab4"}])"));
  EXPECT_EQ(options_.max_new_tokens, 5u);
  const HttpResponse refused = send("POST", "/", R"({"inputs": "a", "parameters": {"x": 1}})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(json::parse(refused.body)["error"].get<std::string>(), HasSubstr("max_new_tokens"));
}

}  // namespace
}  // namespace tandem::apps
