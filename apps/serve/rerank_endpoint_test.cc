// Passages to rank: the forms of requests and answers without a model, then a server with one.
#include "apps/serve/rerank_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "apps/serve/serve_process.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Keeps the last request. The score of passage i is 0.5, 0.75, 0.25.
class RerankEndpoints : public ::testing::Test {
 protected:
  InferenceService service() {
    Endpoint endpoint{.task = "text-classification",
                      .example = R"({"inputs": "a text"})",
                      .info = {},
                      .answer = [](const json&, const std::stop_token&) {
                        return nlohmann::ordered_json("labels");
                      }};
    add_reranking(endpoint, "a/model", /*max_texts=*/3,
                  [this](const RerankRequest& request, const std::stop_token&) {
                    request_ = request;
                    PassageScores found{.scores = {0.5F, 0.75F, 0.25F}, .tokens = 12};
                    found.scores.resize(request.passages.size());
                    return found;
                  });
    return {{.model = "a/model", .allowed_hosts = {}}, endpoint};
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
    const json error = json::parse(response.body);
    EXPECT_THAT(error["error"].get<std::string>(), HasSubstr(message));
    EXPECT_EQ(error.value("error_type", ""), path == "/rerank" ? "Validation" : "");
  }
  RerankRequest request_;
};

TEST_F(RerankEndpoints, TheFormOfTextEmbeddingsInference) {
  for (const char* path : {"/rerank", "/"}) {
    EXPECT_EQ(post(path, R"({"query": "q", "texts": ["a", "b", "c"]})").body,
              R"([{"index": 1, "score": 0.75}, {"index": 0, "score": 0.5}, )"
              R"({"index": 2, "score": 0.25}])");
    EXPECT_EQ(request_.query, "q");
    EXPECT_FALSE(request_.raw_scores);
    EXPECT_FALSE(request_.truncate);
    EXPECT_EQ(post(path, R"({"query": "q", "texts": ["a", "b"], "return_text": true,
                       "raw_scores": true, "truncate": true, "truncation_direction": "Right"})")
                  .body,
              R"([{"index": 1, "text": "b", "score": 0.75}, {"index": 0, "text": "a", )"
              R"("score": 0.5}])");
    EXPECT_TRUE(request_.raw_scores);
    EXPECT_TRUE(request_.truncate);
  }
  EXPECT_EQ(post("/", R"({"inputs": "a text"})").body, R"("labels")");
}

TEST_F(RerankEndpoints, TheFormOfJinaAndCohere) {
  const std::string documents =
      R"({"model": "any", "query": "q", "documents": ["a", {"text": "b"}])";
  EXPECT_EQ(post("/v1/rerank", documents + R"(, "top_n": 1, "return_documents": true})").body,
            R"({"model": "a/model", "results": [{"index": 1, "relevance_score": 0.75, )"
            R"("document": {"text": "b"}}], "usage": {"prompt_tokens": 12, "total_tokens": 12}})");
  const json all = json::parse(post("/v1/rerank", documents + "}").body);
  EXPECT_EQ(all["results"].size(), 2u);
  EXPECT_FALSE(all["results"][0].contains("document"));
  EXPECT_TRUE(request_.truncate);
}

TEST_F(RerankEndpoints, TheModelIsListed) {
  EXPECT_EQ(json::parse(send("GET", "/v1/models", "").body)["data"][0]["id"], "a/model");
}

TEST_F(RerankEndpoints, ErrorsOfBadRequestsStateWhatIsExpected) {
  expect_error("/rerank", R"({"texts": ["a"]})", "no 'query'; expected");
  expect_error("/rerank", R"({"query": null, "texts": ["a"]})", "query is null");
  expect_error("/rerank", R"({"query": "q"})", "no list 'texts'");
  expect_error("/rerank", R"({"query": "q", "texts": "a"})", "no list 'texts'");
  expect_error("/rerank", R"({"query": "q", "texts": []})", "texts has 0 texts, expected 1 to 3");
  expect_error("/rerank", R"({"query": "q", "texts": ["a", "b", "c", "d"]})", "has 4 texts");
  expect_error("/rerank", R"({"query": "q", "texts": ["a", 3]})", "texts[1] is 3");
  expect_error("/rerank", R"({"query": "q", "texts": ["a"], "raw_scores": 1})", "raw_scores is 1");
  expect_error("/rerank", R"({"query": "q", "texts": ["a"], "top_n": 1})", "top_n is unknown");
  expect_error("/rerank", R"({"query": "q", "texts": ["a"], "truncation_direction": "left"})",
               "expected right");
  expect_error("/v1/rerank", R"({"query": "q", "documents": [{"title": "a"}]})", "documents[0]");
  expect_error("/v1/rerank", R"({"query": "q", "documents": ["a"], "top_n": 0})", "top_n is 0");
  HttpRequest request;
  request.path = "/rerank";
  EXPECT_EQ(json::parse(service().error(request, 429, "too many").body)["error_type"],
            "Overloaded");
  EXPECT_EQ(json::parse(service().error(request, 500, "bug").body)["error_type"], "Backend");
}

// --- a server with a model ---

std::string post_pairs_to(const std::string& path, const json& body) {
  std::string request = testing::post(body.dump());
  return request.replace(request.find(" / "), 3, " " + path + " ");
}

class ServeReranker : public ::testing::Test {
 protected:
  ServeReranker()
      : model_(testing::model_with_head(folder_ / "model", "ForSequenceClassification", {"L"})) {
    for (int i = 0; i < 40; ++i) {
      std::string text = fmt::format("Text {}", i);
      for (int word = 0; word < i % 13; ++word) text += " the ferry sails";
      texts_.push_back(text);
    }
  }
  // Output of `tandem rerank`, the best first.
  std::vector<std::pair<std::size_t, double>> rerank() const {
    std::string lines;
    for (const std::string& text : texts_) lines += text + "\n";
    write_file(folder_ / "passages", lines);
    const auto done = testing::run(
        {TANDEM_BINARY_DIR "/bin/tandem", "rerank", "--model", model_, "--json", "--batch_size",
         "7", "--file", (folder_ / "passages").native(), "Which ferry?"},
        {{"OMP_NUM_THREADS", "2"}});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    std::vector<std::pair<std::size_t, double>> ranked;
    std::istringstream output(done.out);
    for (std::string line; std::getline(output, line);) {
      const json entry = json::parse(line);
      ranked.emplace_back(entry["index"], entry["score"]);
    }
    return ranked;
  }

  testing::TemporaryFolder folder_;
  std::string model_;
  std::vector<std::string> texts_;
};

TEST_F(ServeReranker, ClientsAtOnceGetTheScoresOfTandemRerank) {
  const testing::Server server({}, model_);
  const auto expected = rerank();
  ASSERT_EQ(expected.size(), texts_.size());
  std::vector<std::vector<std::pair<std::size_t, double>>> found(8);
  std::vector<std::thread> clients;
  for (std::size_t client = 0; client < found.size(); ++client) {
    clients.emplace_back([&, client] {
      const bool jina = client % 2 == 1;
      const json body = {{"query", "Which ferry?"}, {jina ? "documents" : "texts", texts_}};
      const std::string path = jina ? "/v1/rerank" : "/rerank";
      json answer = json::parse(testing::body_of(server.exchange(post_pairs_to(path, body))));
      if (jina) answer = answer["results"];
      for (const json& entry : answer)
        found[client].emplace_back(entry["index"], entry[jina ? "relevance_score" : "score"]);
    });
  }
  for (std::thread& client : clients) client.join();
  for (const auto& one : found) EXPECT_EQ(one, expected);
}

TEST_F(ServeReranker, LimitsAreThoseOfTheModel) {
  const testing::Server server({"--max_windows", "2"}, model_);
  const auto error = [&](const json& body) {
    const json answer =
        json::parse(testing::body_of(server.exchange(post_pairs_to("/rerank", body))));
    return answer.is_object() ? answer.value("error", "") : "";
  };
  EXPECT_THAT(error({{"query", "q"}, {"texts", texts_}}), HasSubstr("40 texts, expected 1 to 2"));
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "ferry ";
  EXPECT_THAT(error({{"query", "q"}, {"texts", {text}}}),
              HasSubstr("texts[0] and the query have 8004 tokens, expected at most 128"));
  EXPECT_EQ(error({{"query", "q"}, {"texts", {text}}, {"truncate", true}}), "");
}

}  // namespace
}  // namespace tandem::apps
