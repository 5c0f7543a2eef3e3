// Texts to embed: the forms of requests and answers without a model, then a server with one.
#include "apps/serve/embedding_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <thread>

#include "apps/serve/serve_process.h"
#include "tandem/core/json.h"
#include "tandem/text/base64.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> floats_of(const std::string& base64) {
  const std::string bytes = text::from_base64(base64).value();
  std::vector<float> values;
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    std::uint32_t bits = 0;
    for (std::size_t k = 4; k-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes[i + k]);
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

// Notes what it was asked.
class EmbeddingEndpoints : public ::testing::Test {
 protected:
  InferenceService service() {
    return {{.model = "a/model", .allowed_hosts = {}},
            embedding_endpoint(
                "a/model", /*max_texts=*/3, {{"embedding_size", 2}},
                [this](std::span<const TextToEmbed> texts, const EmbedRequest& request,
                       const std::stop_token&) {
                  texts_.assign(texts.begin(), texts.end());
                  request_ = request;
                  Embeddings found{.values = {}, .size = 2, .tokens = 3 * texts.size()};
                  for (std::size_t i = 0; i < texts.size(); ++i)
                    found.values.insert(found.values.end(), {i == 1 ? 0.8F : 0.6F, 0.1F});
                  return found;
                })};
  }
  HttpResponse send(const char* method, const std::string& path, const std::string& body) {
    return service().handle(
        {.method = method, .path = path, .host = "localhost:1", .origin = "", .body = body});
  }
  HttpResponse post(const std::string& path, const std::string& body) {
    return send("POST", path, body);
  }
  void expect_error(const std::string& path, const std::string& body, const std::string& message) {
    const HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_THAT(json::parse(response.body)["error"].get<std::string>(), HasSubstr(message));
  }
  void expect_openai_error(const std::string& body, const std::string& message, const json& param) {
    const HttpResponse response = post("/v1/embeddings", body);
    EXPECT_EQ(response.status, 400) << body;
    const json error = json::parse(response.body)["error"];
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(message));
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["param"], param) << message;
    EXPECT_EQ(error["code"], nullptr);
  }

  std::vector<TextToEmbed> texts_;
  EmbedRequest request_;
};

TEST_F(EmbeddingEndpoints, OpenAisForm) {
  const auto response =
      post("/v1/embeddings", R"({"input": "one", "model": "any", "user": "somebody"})");
  EXPECT_EQ(response.status, 200);
  const json answer = json::parse(response.body);
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "a/model");
  EXPECT_EQ(answer["usage"], json({{"prompt_tokens", 3}, {"total_tokens", 3}}));
  ASSERT_EQ(answer["data"].size(), 1u);
  EXPECT_EQ(answer["data"][0]["object"], "embedding");
  EXPECT_EQ(answer["data"][0]["embedding"].get<std::vector<float>>(),
            (std::vector<float>{0.6F, 0.1F}));
  EXPECT_TRUE(request_.normalize);
  EXPECT_TRUE(request_.truncate);
}

// Clients of OpenAI's interface ask for the models before they offer one.
TEST_F(EmbeddingEndpoints, TheModelIsListed) {
  const json list = json::parse(send("GET", "/v1/models", "").body);
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["data"][0]["id"], "a/model");
  EXPECT_EQ(json::parse(send("GET", "/v1/models/a/model", "").body), list["data"][0]);
  const HttpResponse other = send("GET", "/v1/models/other", "");
  EXPECT_EQ(other.status, 404);
  EXPECT_THAT(other.body, HasSubstr("or GET /, /v1/models, /v1/models/a/model, /health, /info or"));
}

TEST_F(EmbeddingEndpoints, Base64HasTheBitsOfTheNumbers) {
  const std::string input = R"({"input": ["a", "b"], "dimensions": 2, "encoding_format": )";
  const json numbers = json::parse(post("/v1/embeddings", input + R"("float"})").body);
  const json coded = json::parse(post("/v1/embeddings", input + R"("base64"})").body);
  EXPECT_EQ(request_.truncate_dim, 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(coded["data"][i]["index"], i);
    EXPECT_EQ(floats_of(coded["data"][i]["embedding"].get<std::string>()),
              numbers["data"][i]["embedding"].get<std::vector<float>>());
  }
  EXPECT_EQ(coded["data"][0]["embedding"], "mpkZP83MzD0=");
}

TEST_F(EmbeddingEndpoints, OpenAisErrors) {
  expect_openai_error("{}", "no 'input'; expected", nullptr);
  expect_openai_error("[", "not JSON", nullptr);
  expect_openai_error(R"({"input": []})", "input has 0 texts, expected 1 to 3", "input");
  expect_openai_error(R"({"input": ["a", "b", "c", "d"]})", "4 texts, expected 1 to 3", "input");
  expect_openai_error(R"({"input": [1, 2, 3, 4]})", "input is a list of token ids", "input");
  expect_openai_error(R"({"input": [[1, 2]]})", "input[0] is a list of token ids", "input");
  expect_openai_error(R"({"input": {"a": 1}})", "input is a object, expected a text", "input");
  expect_openai_error(R"({"input": null})", "input is a null", "input");
  expect_openai_error(R"({"input": "a", "dimensions": 0})", "dimensions is 0", "dimensions");
  expect_openai_error(R"({"input": "a", "dimensions": 1.5})", "dimensions is 1.5", "dimensions");
  expect_openai_error(R"({"input": "a", "encoding_format": "int8"})",
                      "encoding_format is \"int8\", expected float or base64", "encoding_format");
  expect_openai_error(R"({"input": "a", "model": 3})", "model is 3", "model");
  expect_openai_error(R"({"input": "a", "prompt_name": "query"})", "prompt_name is not known",
                      nullptr);
  HttpRequest request;
  request.path = "/v1/embeddings";
  const HttpResponse full = service().error(request, 429, "too many");
  EXPECT_EQ(json::parse(full.body)["error"]["type"], "rate_limit_error");
  request.path = "/embed";
  const HttpResponse stops = service().error(request, 503, "the server is stopping");
  EXPECT_EQ(stops.body, R"({"error": "the server is stopping"})");
}

TEST_F(EmbeddingEndpoints, TheFormsOfTextEmbeddingsInferenceAndTheHub) {
  for (const char* path : {"/embed", "/", "/models/any"}) {
    const json one = json::parse(post(path, R"({"inputs": "a"})").body);
    ASSERT_EQ(one.size(), 1u) << path;
    EXPECT_EQ(one[0].get<std::vector<float>>(), (std::vector<float>{0.6F, 0.1F}));
    EXPECT_TRUE(request_.normalize);
    const json two =
        json::parse(post(path, R"({"inputs": ["a", "b"], "normalize": false, "truncate": false,
                       "truncation_direction": "right", "prompt_name": "query", "dimensions": 1,
                       "parameters": null, "options": {"wait_for_model": true}})")
                        .body);
    EXPECT_EQ(two.size(), 2u);
    EXPECT_FALSE(request_.normalize);
    EXPECT_FALSE(request_.truncate);
    EXPECT_EQ(request_.prompt_name, "query");
    EXPECT_EQ(request_.truncate_dim, 1u);
    EXPECT_EQ(texts_[1].name, "inputs[1]");
  }
  for (const char* path : {"/similarity", "/"}) {
    const json cosines =
        json::parse(post(path, R"({"inputs": {"source_sentence": "a", "sentences": ["b", "c"]},
                       "parameters": {"truncate": false}})")
                        .body);
    ASSERT_EQ(cosines.size(), 2u) << path;
    EXPECT_NEAR(cosines[0].get<double>(), 0.49, 1e-6);
    EXPECT_NEAR(cosines[1].get<double>(), 0.37, 1e-6);
    EXPECT_EQ(texts_[0].text, "a");
    EXPECT_FALSE(request_.truncate);
  }
}

TEST_F(EmbeddingEndpoints, ErrorsOfBadRequestsStateWhatIsExpected) {
  expect_error("/embed", R"({"input": "a"})", "no 'inputs'; expected");
  expect_error("/embed", R"({"inputs": []})", "inputs has 0 texts");
  expect_error("/embed", R"({"inputs": [[1]]})", "inputs[0] is a list of token ids");
  expect_error("/embed", R"({"inputs": "a", "normalize": 1})", "normalize is 1, expected true");
  expect_error("/embed", R"({"inputs": "a", "truncation_direction": "left"})", "expected right");
  expect_error("/embed", R"({"inputs": "a", "top_k": 1})", "top_k is not known; known are");
  expect_error("/", R"({"inputs": "a", "parameters": {"x": 1}})", "x is not known");
  expect_error("/similarity", R"({"inputs": "a"})", "expected an object with source_sentence");
  expect_error("/similarity", R"({"inputs": {"source_sentence": "a"}})", "no list 'sentences'");
  expect_error("/similarity", R"({"inputs": {"source_sentence": "a", "sentences": []}})",
               "inputs.sentences has 0 texts");
}

TEST_F(EmbeddingEndpoints, OtherMethodsAreRefused) {
  const HttpResponse response = service().handle(
      {.method = "GET", .path = "/embed", .host = "localhost:1", .origin = "", .body = ""});
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.allow, "POST");
}

// --- a server with a model ---

std::string post_to(const std::string& path, const json& body) {
  std::string request = testing::post(body.dump());
  return request.replace(request.find(" / "), 3, " " + path + " ");
}

class ServeEmbeddings : public ::testing::Test {
 protected:
  ServeEmbeddings() : model_(folder_ / "model") {
    fs::copy(TANDEM_SOURCE_DIR "/examples/demo/model", model_, fs::copy_options::recursive);
    write("modules.json", json{{{"idx", 0}, {"path", ""}, {"type", "x.models.Transformer"}},
                               {{"idx", 1}, {"path", "1_Pooling"}, {"type", "x.models.Pooling"}}});
    fs::create_directory(model_ / "1_Pooling");
    write("1_Pooling/config.json", {{"pooling_mode_mean_tokens", true}});
    write("config_sentence_transformers.json", {{"prompts", {{"query", "ask: "}}}});
    for (int i = 0; i < 40; ++i) {
      std::string text = fmt::format("Text {}", i);
      for (int word = 0; word < i % 13; ++word) text += " the ferry sails";
      texts_.push_back(text);
    }
  }
  void write(const std::string& name, const json& content) const {
    std::ofstream(model_ / name) << content.dump();
  }
  // Output of `tandem embed`.
  std::vector<std::vector<float>> embed(const std::vector<std::string>& flags) const {
    std::vector<std::string> command = {TANDEM_BINARY_DIR "/bin/tandem", "embed", "--json",
                                        "--model", model_.native()};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), texts_.begin(), texts_.end());
    const auto done = testing::run(command, {{"OMP_NUM_THREADS", "2"}});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    std::vector<std::vector<float>> embeddings;
    std::istringstream lines(done.out);
    for (std::string line; std::getline(lines, line);)
      embeddings.push_back(json::parse(line)["embedding"].get<std::vector<float>>());
    return embeddings;
  }

  testing::TemporaryFolder folder_;
  fs::path model_;
  std::vector<std::string> texts_;
};

TEST_F(ServeEmbeddings, HaveTheBitsOfTandemEmbed) {
  const testing::Server server({}, model_.native());
  const auto embeddings = [&](json body) {
    body["inputs"] = texts_;
    const std::string answer = testing::body_of(server.exchange(post_to("/embed", body)));
    return json::parse(answer).get<std::vector<std::vector<float>>>();
  };
  EXPECT_EQ(embeddings({{"normalize", false}}), embed({}));
  EXPECT_EQ(embeddings(json::object()), embed({"--normalize"}));
  EXPECT_EQ(embeddings({{"dimensions", 8}, {"prompt_name", "query"}}),
            embed({"--normalize", "--truncate_dim", "8", "--prompt_name", "query"}));
}

TEST_F(ServeEmbeddings, PromptsMayBeOutsideThePooling) {
  const auto inside = embed({"--normalize", "--prompt_name", "query"});
  write("1_Pooling/config.json", {{"pooling_mode_mean_tokens", true}, {"include_prompt", false}});
  const auto outside = embed({"--normalize", "--prompt_name", "query"});
  EXPECT_NE(inside, outside);
  const testing::Server server({}, model_.native());
  const json request = {{"inputs", texts_}, {"prompt_name", "query"}};
  const std::string answer = testing::body_of(server.exchange(post_to("/embed", request)));
  EXPECT_EQ(json::parse(answer).get<std::vector<std::vector<float>>>(), outside);
}

TEST_F(ServeEmbeddings, ClientsAtOnceGetTheSameBits) {
  const testing::Server server({}, model_.native());
  const auto expected = embed({"--normalize"});
  std::vector<std::vector<std::vector<float>>> found(8);
  std::vector<std::thread> clients;
  for (std::size_t client = 0; client < found.size(); ++client) {
    clients.emplace_back([&, client] {
      const std::string response = server.exchange(
          post_to("/v1/embeddings", {{"input", texts_}, {"encoding_format", "base64"}}));
      const json answer = json::parse(testing::body_of(response));
      for (const json& entry : answer["data"])
        found[client].push_back(floats_of(entry["embedding"].get<std::string>()));
    });
  }
  for (std::thread& client : clients) client.join();
  for (const auto& one : found) EXPECT_EQ(one, expected);
  EXPECT_EQ(server.metric("tandem_serve_request_seconds_count"), "8");
}

TEST_F(ServeEmbeddings, LimitsAreThoseOfTheModel) {
  const testing::Server server({"--max_windows", "2", "--max_request_bytes", "500"},
                               model_.native());
  const auto error = [&](const std::string& path, const json& body) {
    return json::parse(testing::body_of(server.exchange(post_to(path, body))))["error"];
  };
  std::string text = "a";
  for (int i = 0; i < 200; ++i) text += " a";
  const json info = json::parse(
      testing::body_of(server.exchange("GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")));
  EXPECT_EQ(info["task"], "feature-extraction");
  EXPECT_EQ(info["max_client_batch_size"], 2);
  EXPECT_THAT(error("/v1/embeddings", {{"input", "a"}, {"dimensions", 100000}})["message"],
              HasSubstr(fmt::format("expected 1 to {}", info["embedding_size"].get<int>())));
  EXPECT_THAT(error("/embed", {{"inputs", {"a", "b", "c"}}}), HasSubstr("expected 1 to 2"));
  EXPECT_THAT(error("/embed", {{"inputs", "a"}, {"prompt_name", "none"}}),
              HasSubstr("prompt_name: unknown prompt 'none', expected one of document, query"));
  EXPECT_THAT(error("/v1/embeddings", {{"input", text + text}})["message"],
              HasSubstr("larger than 500 bytes"));
  const json unknown = error("/rerank", {{"query", "a"}, {"texts", {"b"}}});
  EXPECT_THAT(unknown, HasSubstr("unknown path '/rerank' for a model of feature-extraction"));
  EXPECT_THAT(unknown, HasSubstr("POST /embed, POST /similarity, POST /v1/embeddings"));
}

// modules.json of a cross-encoder names no Pooling; that of a bi-encoder counts more than the class
// in config.json.
TEST_F(ServeEmbeddings, ACrossEncoderIsStillServedByItsClass) {
  const auto task_of = [&](const fs::path& model) {
    const testing::Server server({}, model.native());
    const std::string info = server.exchange("GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return json::parse(testing::body_of(info))["task"].get<std::string>();
  };
  model_ =
      testing::model_with_head(folder_ / "classifier", "ForSequenceClassification", {"a", "b"});
  EXPECT_EQ(task_of(model_), "text-classification");
  const json transformer = {{"idx", 0}, {"path", ""}, {"type", "x.models.Transformer"}};
  write("modules.json", {transformer});
  EXPECT_EQ(task_of(model_), "text-classification");
  write("modules.json", {transformer, {{"idx", 1}, {"path", "p"}, {"type", "x.models.Pooling"}}});
  fs::create_directory(model_ / "p");
  write("p/config.json", {{"pooling_mode_cls_token", true}});
  EXPECT_EQ(task_of(model_), "feature-extraction");
}

TEST_F(ServeEmbeddings, LongTextsAreCutOrRefused) {
  const testing::Server server({"--max_seq_length", "6"}, model_.native());
  const auto answer = [&](const json& body) {
    return json::parse(testing::body_of(server.exchange(post_to("/embed", body))));
  };
  EXPECT_EQ(answer({{"inputs", "a a a a a a a"}}), answer({{"inputs", "a a a a"}}));
  EXPECT_THAT(answer({{"inputs", "a a a a a a a"}, {"truncate", false}})["error"],
              HasSubstr("inputs has 9 tokens, expected at most 6"));
  const json usage = json::parse(testing::body_of(
      server.exchange(post_to("/v1/embeddings", {{"input", {"a", "a a a a a a a"}}}))))["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 3 + 6);
}

}  // namespace
}  // namespace tandem::apps
