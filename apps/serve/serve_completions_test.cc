// `tandem serve` with a small decoder: texts, conversations and streams over HTTP, several clients,
// clients that go, and adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <optional>

#include "apps/serve/serve_process.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";
constexpr const char* kPrompt = "The ferry leaves the harbour";
constexpr const char* kTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\n' }}{% endif %}";

std::string request_to(const std::string& path, const json& body) {
  std::string request = post(body.dump());
  return request.replace(request.find(" / "), 3, " " + path + " ");
}

// The body of an answer in chunks (RFC 9112, 7.1); nothing if it is cut off.
std::optional<std::string> joined_chunks(const std::string& response) {
  std::string_view rest = std::string_view(response).substr(response.find("\r\n\r\n") + 4);
  std::string body;
  while (true) {
    const std::size_t end = rest.find("\r\n");
    if (end == std::string_view::npos) return std::nullopt;
    const std::size_t size = std::stoul(std::string(rest.substr(0, end)), nullptr, 16);
    if (rest.size() < end + 2 + size + 2) return std::nullopt;
    if (size == 0) return body;
    body += rest.substr(end + 2, size);
    rest.remove_prefix(end + 2 + size + 2);
  }
}

// The data of a whole stream of events.
std::vector<std::string> events_of(const std::string& response) {
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(response, HasSubstr("Content-Type: text/event-stream\r\n"));
  std::string rest = joined_chunks(response).value_or("");
  std::vector<std::string> events;
  for (std::size_t end = 0; (end = rest.find("\n\n")) != std::string::npos;) {
    EXPECT_THAT(rest, StartsWith("data: "));
    events.push_back(rest.substr(6, end - 6));
    rest.erase(0, end + 2);
  }
  EXPECT_EQ(rest, "");
  return events;
}

// A copy of the small Llama of the goldens with a template of conversations and `positions`.
class ServeCompletions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(goldens() / "models/tiny-llama"))
      GTEST_SKIP() << "needs goldens, which are absent: " << goldens();
  }
  static fs::path goldens() { return shared_data() / "golden/next"; }
  std::string model(std::size_t positions = 128, bool chat = true) const {
    const fs::path folder = folder_ / "llama";
    fs::create_directory(folder);
    for (const auto& file : fs::directory_iterator(goldens() / "models/tiny-llama"))
      write_file(folder / file.path().filename(), read_file(file.path()));
    json config = json::parse(read_file(folder / "config.json"));
    config["max_position_embeddings"] = positions;
    write_file(folder / "config.json", config.dump());
    if (chat) write_file(folder / "chat_template.jinja", kTemplate);
    return folder.native();
  }
  // The text of `tandem generate` for the same model.
  static json generated(const std::string& model, std::vector<std::string> flags) {
    std::vector<std::string> command = {TANDEM_BINARY_DIR "/bin/tandem", "generate", "--json",
                                        "--model", model};
    command.insert(command.end(), flags.begin(), flags.end());
    const ProcessResult done = testing::run(command, {{"OMP_NUM_THREADS", "2"}});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return json::parse(done.out);
  }
  static json answer(const Server& server, const char* path, const json& body) {
    const std::string response = server.exchange(request_to(path, body));
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n")) << response;
    return json::parse(body_of(response));
  }
  static std::string drawn(const Server& server, int seed, int count = 40) {
    return answer(server, kText,
                  {{"prompt", kPrompt},
                   {"max_tokens", count},
                   {"seed", seed},
                   {"temperature", 1.5}})["choices"][0]["text"];
  }

  TemporaryFolder folder_;
};

TEST_F(ServeCompletions, TextsAreThoseOfTandemGenerate) {
  const std::string folder = model();
  const Server server({}, folder);
  const json greedy =
      answer(server, kText, {{"prompt", kPrompt}, {"max_tokens", 12}, {"temperature", 0}});
  const json want = generated(folder, {"--prompt", kPrompt, "--max_new_tokens", "12"});
  EXPECT_EQ(greedy["choices"][0]["text"], want["text"]);
  EXPECT_EQ(greedy["choices"][0]["finish_reason"], want["finish_reason"]);
  EXPECT_EQ(greedy["usage"]["completion_tokens"], want["tokens"].size());
  const json sampled =
      generated(folder, {"--prompt", kPrompt, "--max_new_tokens", "40", "--seed", "7",
                         "--do_sample", "--top_k", "0", "--temperature", "1.5"});
  EXPECT_EQ(drawn(server, 7), sampled["text"]);
  EXPECT_NE(drawn(server, 8), sampled["text"]);
  EXPECT_EQ(
      answer(server, "/",
             {{"inputs", kPrompt}, {"parameters", {{"max_new_tokens", 12}}}})[0]["generated_text"],
      want["text"]);
}

TEST_F(ServeCompletions, AConversationIsRenderedByTheModelsTemplate) {
  const std::string folder = model();
  const Server server({}, folder);
  const json chat = answer(
      server, kChat,
      {{"messages",
        {{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "When?"}}}},
       {"temperature", 0},
       {"max_tokens", 12}});
  const json want = generated(folder, {"--prompt",
                                       "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
                                       "When?<|im_end|>\n<|im_start|>assistant\n",
                                       "--max_new_tokens", "12"});
  EXPECT_EQ(chat["choices"][0]["message"]["content"], want["text"]);
  EXPECT_EQ(generated(folder, {"--prompt", "When?", "--system", "Be brief.", "--max_new_tokens",
                               "12"})["text"],
            want["text"]);
}

TEST_F(ServeCompletions, AModelWithoutATemplateContinuesTextsOnly) {
  const Server server({}, model(128, /*chat=*/false));
  const std::string response = server.exchange(
      request_to(kChat, {{"messages", {{{"role", "user"}, {"content", "When?"}}}}}));
  EXPECT_THAT(response, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(json::parse(body_of(response))["error"]["message"].get<std::string>(),
              HasSubstr("the model has no chat template (chat_template.jinja)"));
  EXPECT_NE(drawn(server, 1), "");
  const std::string info =
      body_of(server.exchange("GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(json::parse(info)["chat"], false);
  EXPECT_EQ(json::parse(info)["task"], "text-generation");
}

TEST_F(ServeCompletions, AStreamHasTheSameText) {
  const Server server({}, model());
  json body = {{"prompt", kPrompt}, {"max_tokens", 40}, {"seed", 3}, {"temperature", 1.5}};
  const json whole = answer(server, kText, body);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const auto events = events_of(server.exchange(request_to(kText, body)));
  ASSERT_GT(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  for (std::size_t i = 0; i + 2 < events.size(); ++i)
    text += json::parse(events[i])["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, whole["choices"][0]["text"]);
  EXPECT_EQ(json::parse(events[events.size() - 3])["choices"][0]["finish_reason"],
            whole["choices"][0]["finish_reason"]);
  EXPECT_EQ(json::parse(events[events.size() - 2])["usage"], whole["usage"]);
  // The connection stays open for the next request.
  Client client(server.port());
  client.send(request_to(kText, body));
  std::string received;
  for (int i = 0; i < 600 && !received.ends_with("\r\n0\r\n\r\n"); ++i)
    received += client.receive(50ms);
  EXPECT_EQ(events_of(received).size(), events.size());
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(body_of(client.receive_answer()), R"({"status": "ok"})");
}

TEST_F(ServeCompletions, ATextEndsAtAStop) {
  const Server server({}, model());
  const std::string whole = drawn(server, 3);
  const auto is_letter = [](char c) { return c > ' ' && c < 0x7f; };
  std::size_t begin = 4;
  while (begin + 2 < whole.size() && !(is_letter(whole[begin]) && is_letter(whole[begin + 1])))
    ++begin;
  const std::string stop = whole.substr(begin, 2);
  ASSERT_EQ(whole.find(stop), begin) << whole;
  json body = {
      {"prompt", kPrompt}, {"max_tokens", 40}, {"seed", 3}, {"stop", {stop}}, {"temperature", 1.5}};
  const json cut = answer(server, kText, body);
  EXPECT_EQ(cut["choices"][0]["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "stop");
  body["stream"] = true;
  std::string text;
  for (const std::string& event : events_of(server.exchange(request_to(kText, body)))) {
    if (event != "[DONE]") text += json::parse(event)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, cut["choices"][0]["text"]);
}

TEST_F(ServeCompletions, ASeedGivesTheSameTextBesideOtherClients) {
  const Server server({}, model());
  std::vector<std::string> alone;
  for (int seed = 0; seed < 12; ++seed) alone.push_back(drawn(server, seed, 20 + 5 * seed));
  std::vector<std::future<std::string>> together;
  for (int seed = 0; seed < 12; ++seed)
    together.push_back(std::async(std::launch::async,
                                  [&server, seed] { return drawn(server, seed, 20 + 5 * seed); }));
  for (std::size_t seed = 0; seed < alone.size(); ++seed)
    EXPECT_EQ(together[seed].get(), alone[seed]) << seed;
}

TEST_F(ServeCompletions, BadRequestsAreRefused) {
  const Server server({}, model());
  const auto refused = [&](const char* path, const json& body, const char* message) {
    const std::string response = server.exchange(request_to(path, body));
    EXPECT_THAT(response, StartsWith("HTTP/1.1 400 Bad Request\r\n"));
    EXPECT_THAT(json::parse(body_of(response))["error"]["message"].get<std::string>(),
                HasSubstr(message));
  };
  refused(kText, {{"prompt", kPrompt}, {"max_tokens", 128}}, "max_tokens is 128");
  refused(kText, {{"prompt", kPrompt}, {"stream", true}, {"x", 1}}, "x is not a known field");
  refused(kText, {{"prompt", ""}}, "the prompt has no token");
  refused(kChat, {{"prompt", kPrompt}}, "the body has no 'messages'");
  const std::string large =
      server.exchange(request_to(kText, {{"prompt", std::string(2 << 20, 'x')}}));
  EXPECT_THAT(large, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(json::parse(body_of(large))["error"]["type"], "invalid_request_error");
}

// The computation of a long text ends with its client, whether it is streamed or not.
TEST_F(ServeCompletions, AClientThatGoesEndsItsText) {
  const Server server({"--max_running", "2"}, model(1 << 20));
  for (const bool stream : {false, true}) {
    for (int i = 0; i < 5; ++i) {
      Client client(server.port());
      client.send(request_to(
          kText,
          {{"prompt", kPrompt}, {"max_tokens", 1000000}, {"temperature", 0}, {"stream", stream}}));
      const std::string begin = client.receive(300ms);
      EXPECT_EQ(begin.empty(), !stream);
      EXPECT_THAT(begin, Not(HasSubstr("[DONE]")));
    }
  }
  for (int i = 0; i < 100 && server.metric("tandem_serve_running_requests") != "0"; ++i)
    std::this_thread::sleep_for(50ms);
  EXPECT_EQ(server.metric("tandem_serve_running_requests"), "0");
  EXPECT_NE(drawn(server, 1), "");
}

TEST_F(ServeCompletions, TheEndOfTheServerCutsAStreamOff) {
  Server server({}, model(1 << 20));
  Client client(server.port());
  client.send(request_to(
      kText, {{"prompt", kPrompt}, {"max_tokens", 1000000}, {"temperature", 0}, {"stream", true}}));
  std::string received = client.receive(300ms);
  server.process().signal(SIGTERM);
  received += client.receive(20s);
  EXPECT_TRUE(client.closed());
  EXPECT_THAT(received, Not(HasSubstr("[DONE]")));
  EXPECT_EQ(joined_chunks(received), std::nullopt);
  EXPECT_EQ(server.process().wait().exit_code, 0);
}

TEST_F(ServeCompletions, LimitsEndATextOrRefuseIt) {
  const std::string folder = model(1 << 20);
  const Server server({"--generation_timeout", "0.5", "--max_new_tokens", "900000",
                       "--max_cache_bytes", "200000000"},
                      folder);
  const json late =
      answer(server, kText, {{"prompt", kPrompt}, {"max_tokens", 500000}, {"temperature", 0}});
  EXPECT_EQ(late["choices"][0]["finish_reason"], "length");
  EXPECT_LT(late["usage"]["completion_tokens"], 500000);
  const std::string large =
      server.exchange(request_to(kText, {{"prompt", kPrompt}, {"max_tokens", 900000}}));
  EXPECT_THAT(large, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(large, HasSubstr("at most 190 MiB are allowed"));
}

TEST_F(ServeCompletions, AnAdapterIsServedWithItsModel) {
  const std::string folder = model();
  const fs::path adapter = folder_ / "adapter";
  fs::create_directory(adapter);
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    write_file(adapter / file, read_file(goldens() / "decoders/lora_llama_qv/stirred" / file));
  json config = json::parse(read_file(adapter / "adapter_config.json"));
  config["base_model_name_or_path"] = folder;
  write_file(adapter / "adapter_config.json", config.dump());
  const Server plain({}, folder), adapted({}, adapter.native());
  EXPECT_NE(drawn(adapted, 3), drawn(plain, 3));
  EXPECT_EQ(
      drawn(adapted, 3),
      generated(adapter.native(), {"--prompt", kPrompt, "--max_new_tokens", "40", "--seed", "3",
                                   "--do_sample", "--top_k", "0", "--temperature", "1.5"})["text"]);
}

}  // namespace
}  // namespace tandem::testing
