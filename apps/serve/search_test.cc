// Search over a file of texts: reading the file, forms of requests, then a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include "apps/serve/search_corpus.h"
#include "apps/serve/search_endpoint.h"
#include "apps/serve/serve_process.h"
#include "support/browser.h"
#include "support/gzip.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// --- the file ---

class Corpus : public ::testing::Test {
 protected:
  std::vector<CorpusText> read(const std::string& name, const std::string& content,
                               const CorpusLimits& limits = {}) const {
    write_file(folder_ / name, content);
    return read_corpus((folder_ / name).native(), limits);
  }
  void expect_error(const std::string& name, const std::string& content, const std::string& message,
                    const CorpusLimits& limits = {}) const {
    try {
      read(name, content, limits);
      ADD_FAILURE() << content;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr(message)));
    }
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Corpus, HasATextOnEachLineThatIsNotBlank) {
  const auto texts = read("a.txt", "\xef\xbb\xbfone\r\n\r\n \t\n{\"text\": 2}\nthree");
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts[0].text, "one");
  EXPECT_EQ(texts[0].id, "1");
  EXPECT_EQ(texts[1].text, "{\"text\": 2}");
  EXPECT_EQ(texts[1].id, "4");
  EXPECT_EQ(texts[2].id, "5");
}

TEST_F(Corpus, JsonLinesHaveIdsAndTitles) {
  const auto texts = read("a.jsonl", R"({"_id": "d1", "text": "one", "title": "First"}

{"id": 7, "text": "two", "title": ""}
{"_id": null, "text": "three", "metadata": {}}
{"_id": "empty", "text": " "}
{"_id": "t", "text": "", "title": "only a title"}
)");
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_EQ(texts[0].text, "First one");
  EXPECT_EQ(texts[0].id, "d1");
  EXPECT_EQ(texts[1].text, "two");
  EXPECT_EQ(texts[1].id, "7");
  EXPECT_EQ(texts[2].id, "4");
  EXPECT_EQ(texts[3].text, "only a title");
  const auto compressed =
      read("a.jsonl.gz", testing::gzip("{\"_id\": \"d1\", \"text\": \"one\"}\n"));
  ASSERT_EQ(compressed.size(), 1u);
  EXPECT_EQ(compressed[0].text, "one");
}

TEST_F(Corpus, BadLinesAreNamed) {
  expect_error("a.txt",
               "good\nb\xe4"
               "d\n",
               "line 2: byte 2 is not UTF-8");
  expect_error("a.txt", "\n \n", "has no text in it");
  expect_error("a.jsonl", "{\"text\": \"a\"}\nplain\n", "line 2: found no JSON");
  expect_error("a.jsonl", "[1]\n", "line 1: found a array, expected an object with text");
  expect_error("a.jsonl", "{\"_id\": \"a\"}\n", "line 1: the object has no 'text'");
  expect_error("a.jsonl", "{\"text\": 3}\n", "'text' is a number, expected a text");
  expect_error("a.jsonl", "{\"text\": \"a\", \"title\": []}\n", "'title' is a array");
  expect_error("a.jsonl", "{\"text\": \"a\", \"_id\": 1.5}\n", "'_id' is a number");
  expect_error("a.txt", "a\nb\nc\n", "at most 2 texts", {.texts = 2});
  expect_error("a.txt", "abc\nde\n", "of 4 bytes together", {.bytes = 4});
  EXPECT_EQ(read("a.txt", "abc\nd\n", {.texts = 2, .bytes = 4}).size(), 2u);
}

// --- the endpoint ---

class SearchEndpoint : public ::testing::Test {
 protected:
  HttpResponse post(const std::string& body) {
    Endpoint endpoint{.task = "feature-extraction", .example = "", .info = {}, .answer = {}};
    endpoint.routes.push_back(search_route(
        /*max_bytes=*/20,
        [this](const std::string& query, std::size_t top_k, const std::stop_token&) {
          query_ = query;
          top_k_ = top_k;
          return std::vector<FoundText>(std::min<std::size_t>(top_k, 3),
                                        {.index = 4, .id = "d", .text = "four", .score = 0.5f});
        }));
    return InferenceService({.model = "a", .allowed_hosts = {}}, endpoint)
        .handle({.method = "POST",
                 .path = "/search",
                 .host = "localhost:1",
                 .origin = "",
                 .body = body});
  }
  void expect_error(const std::string& body, const std::string& message) {
    const HttpResponse response = post(body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_THAT(json::parse(response.body)["error"].get<std::string>(), HasSubstr(message));
  }
  std::string query_;
  std::size_t top_k_ = 0;
};

TEST_F(SearchEndpoint, TakesAQueryAndANumber) {
  EXPECT_EQ(post(R"({"query": "where?", "top_k": 1})").body,
            R"([{"index": 4, "id": "d", "text": "four", "score": 0.5}])");
  EXPECT_EQ(query_, "where?");
  EXPECT_EQ(top_k_, 1u);
  EXPECT_EQ(json::parse(post(R"({"query": "", "top_k": null})").body).size(), 3u);
  EXPECT_EQ(top_k_, 10u);
}

TEST_F(SearchEndpoint, NamesWhatIsWrong) {
  expect_error("{}", "no 'query'; expected");
  expect_error("[", "not JSON");
  expect_error(R"({"query": ["a"]})", "query is a array, expected a text");
  expect_error(R"({"query": null})", "query is a null, expected a text");
  expect_error(R"({"query": "a", "top_k": 0})", "top_k is 0, expected an integer from 1 to 1000");
  expect_error(R"({"query": "a", "top_k": 1001})", "top_k is 1001, expected");
  expect_error(R"({"query": "a", "top_k": 1.5})", "top_k is 1.5, expected");
  expect_error(R"({"query": "a", "top_k": "3"})", "top_k is \"3\", expected");
  expect_error(R"({"query": "a", "k": 3})", "k is not known; known are query and top_k");
}

// --- a server ---

std::string search(const std::string& body) {
  return fmt::format("POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                     body.size(), body);
}

class ServeSearch : public ::testing::Test {
 protected:
  ServeSearch() : model_(folder_ / "model"), corpus_(folder_ / "corpus.jsonl") {
    fs::copy(TANDEM_SOURCE_DIR "/examples/demo/model", model_, fs::copy_options::recursive);
    write("modules.json", json{{{"idx", 0}, {"path", ""}, {"type", "x.models.Transformer"}},
                               {{"idx", 1}, {"path", "1_Pooling"}, {"type", "x.models.Pooling"}}});
    fs::create_directory(model_ / "1_Pooling");
    write("1_Pooling/config.json", {{"pooling_mode_mean_tokens", true}});
    set_similarity("cosine");
    std::ofstream corpus(corpus_);
    for (int i = 0; i < 30; ++i) {
      std::string text = fmt::format("Text {}", i);
      for (int word = 0; word < i % 7; ++word) text += " the ferry sails";
      texts_.push_back(text);
      corpus << json{{"_id", fmt::format("d{}", i)}, {"text", text}}.dump() << "\n";
    }
    corpus << R"({"_id": "<b>", "text": "<img src=x onerror=alert(1)> at dawn"})"
           << "\n";
  }
  void write(const std::string& name, const json& content) const {
    std::ofstream(model_ / name) << content.dump();
  }
  void set_similarity(const std::string& name) const {
    write("config_sentence_transformers.json",
          {{"prompts", {{"query", "ask: "}, {"passage", "text: "}}}, {"similarity_fn_name", name}});
  }
  static json answer(const testing::Server& server, const json& body) {
    return json::parse(testing::body_of(server.exchange(search(body.dump()))));
  }
  // The index and the score of the best text by the embeddings of /embed.
  static std::vector<float> embedding(const testing::Server& server, const std::string& text,
                                      const std::string& prompt, bool normalize) {
    const std::string body =
        json{{"inputs", text}, {"prompt_name", prompt}, {"normalize", normalize}}.dump();
    const std::string request =
        fmt::format("POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body);
    return json::parse(testing::body_of(server.exchange(request)))[0].get<std::vector<float>>();
  }

  testing::TemporaryFolder folder_;
  fs::path model_, corpus_;
  std::vector<std::string> texts_;
};

TEST_F(ServeSearch, FindsTheTextsNearestByTheModelsSimilarity) {
  for (const std::string name : {"cosine", "dot", "euclidean"}) {
    set_similarity(name);
    testing::Server server({"--corpus", corpus_.native()}, model_.native());
    const json found = answer(server, {{"query", "the ferry sails"}, {"top_k", 1000}});
    ASSERT_EQ(found.size(), 31u);
    const auto query = embedding(server, "the ferry sails", "query", name == "cosine");
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (i > 0) {
        EXPECT_GE(found[i - 1]["score"], found[i]["score"]);
      }
      const auto index = found[i]["index"].get<std::size_t>();
      if (index == 30) continue;
      EXPECT_EQ(found[i]["text"], texts_[index]);
      EXPECT_EQ(found[i]["id"], fmt::format("d{}", index));
      const auto text = embedding(server, texts_[index], "passage", name == "cosine");
      double dot = 0, distance = 0;
      for (std::size_t k = 0; k < text.size(); ++k) {
        dot += static_cast<double>(text[k]) * query[k];
        distance += std::pow(static_cast<double>(text[k]) - query[k], 2);
      }
      const double expected = name == "euclidean" ? -std::sqrt(distance) : dot;
      EXPECT_NEAR(found[i]["score"].get<double>(), expected, 1e-4 * (1 + std::abs(expected)))
          << name;
    }
    EXPECT_THAT(server.process().err_so_far(), HasSubstr("31 of 31 texts embedded in "));
  }
}

TEST_F(ServeSearch, ClientsAtOnceGetTheSameBits) {
  const testing::Server server({"--corpus", corpus_.native()}, model_.native());
  const auto ask = [&](std::size_t client) {
    return answer(server, {{"query", texts_[client]}, {"top_k", 5}});
  };
  std::vector<json> alone, together(12);
  for (std::size_t client = 0; client < together.size(); ++client) alone.push_back(ask(client));
  std::vector<std::thread> clients;
  for (std::size_t client = 0; client < together.size(); ++client)
    clients.emplace_back([&, client] { together[client] = ask(client); });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
}

TEST_F(ServeSearch, IsRefusedWithoutItsNeeds) {
  const auto serve = [&](const fs::path& model, const fs::path& corpus) {
    return testing::run({TANDEM_BINARY_DIR "/bin/tandem", "serve", "--port", "0", "--model",
                         model.native(), "--corpus", corpus.native()});
  };
  EXPECT_THAT(serve(model_, folder_ / "absent").err, HasSubstr("cannot open"));
  const auto classifier = testing::model_with_head(folder_ / "head", "ForQuestionAnswering");
  EXPECT_THAT(serve(classifier, corpus_).err,
              HasSubstr("--corpus: the model was trained for question answering"));
  // Without the file there is no such path.
  const testing::Server server({}, model_.native());
  EXPECT_THAT(server.exchange(search(R"({"query": "a"})")), StartsWith("HTTP/1.1 404 "));
}

class ServeSearchPage : public ServeSearch {
 protected:
  void SetUp() override {
    if (testing::find_browser().empty()) GTEST_SKIP() << testing::kNoBrowser;
  }
};

// The page asks for a query alone; ids and texts stay text.
TEST_F(ServeSearchPage, HasASearchBox) {
  const testing::Server server({"--corpus", corpus_.native()}, model_.native());
  const std::string page =
      testing::dump_dom(fmt::format("http://127.0.0.1:{}/?question=at%20dawn", server.port()), 400);
  EXPECT_THAT(page, HasSubstr(">Search texts</h1>"));
  EXPECT_THAT(page, HasSubstr("31 texts of corpus.jsonl"));
  EXPECT_THAT(page, HasSubstr("POST /search"));
  EXPECT_THAT(page, HasSubstr("<td>&lt;b&gt;</td><td>&lt;img src=x"));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, ::testing::ContainsRegex("<textarea id=\"context\"[^>]* hidden"));
  EXPECT_THAT(page, HasSubstr("<tr tabindex=\"0\" class=\"chosen\">"));
}

}  // namespace
}  // namespace tandem::apps
