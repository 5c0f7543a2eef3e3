// The service without sockets and without a model.
#include "apps/serve/inference_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/serve/question_endpoint.h"
#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/core/json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Knows two answers and notes what it was asked.
class Service : public ::testing::Test {
 protected:
  InferenceService service(bool loopback_only = true, std::vector<std::string> allowed_hosts = {}) {
    return InferenceService(
        {.model = "a/model",
         .num_parameters = 7,
         .loopback_only = loopback_only,
         .allowed_hosts = std::move(allowed_hosts)},
        question_endpoint({}, /*max_questions=*/32,
                          [this](std::span<const Question> questions, const AnswerOptions& options,
                                 const std::stop_token& cancelled) {
                            context_ = questions.back().context;
                            question_ = questions.back().question;
                            options_ = options;
                            if (question_ == "fail") raise<DataError>("cannot");
                            if (cancelled.stop_requested()) raise<Interrupted>("given up");
                            std::vector<Answer> answers = {
                                {.text = "Oslo", .probability = 0.75, .span = AnswerSpan{4, 8}},
                                {.text = "", .probability = 0.25, .span = std::nullopt}};
                            answers.resize(std::min(answers.size(), options.n_best));
                            return std::vector<std::vector<Answer>>(questions.size(), answers);
                          }));
  }
  HttpResponse post(const std::string& body) {
    return service().handle(
        {.method = "POST", .path = "/", .host = "localhost:1", .origin = "", .body = body});
  }
  void expect_error(const HttpResponse& response, int status, const std::string& message) {
    EXPECT_EQ(response.status, status);
    EXPECT_THAT(json::parse(response.body)["error"].get<std::string>(), HasSubstr(message));
  }

  std::string context_, question_;
  AnswerOptions options_;
};

TEST_F(Service, AnswersInHuggingFacesShape) {
  const auto response = post(R"({"inputs": {"question": "Where?", "context": "é to Oslo"}})");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, R"({"score": 0.75, "start": 4, "end": 8, "answer": "Oslo"})");
  EXPECT_EQ(context_, "é to Oslo");
  EXPECT_EQ(question_, "Where?");
  EXPECT_EQ(options_.n_best, 1u);
}

// huggingface_hub before 0.25 sends a question without "inputs".
TEST_F(Service, AQuestionMayBeTheWholeBody) {
  const auto response = post(R"({"question": "Where?", "context": "to Oslo"})");
  EXPECT_EQ(response.body, R"({"score": 0.75, "start": 4, "end": 8, "answer": "Oslo"})");
  EXPECT_EQ(question_, "Where?");
  const auto two =
      post(R"({"question": "Where?", "context": "to Oslo", "parameters": {"top_k": 2}})");
  EXPECT_EQ(json::parse(two.body).size(), 2u);
  expect_error(post(R"({"question": "Where?"})"), 400, "inputs has no 'context'");
  expect_error(post(R"({"context": "to Oslo"})"), 400, "the body has no 'inputs'");
}

// The cost of a request is proportional to its size: names are not searched one by one, and their
// number is limited.
TEST_F(Service, ManyValuesAreRefused) {
  std::string names;
  for (int i = 0; i < 120000; ++i) names += fmt::format(R"(, "{}": 0)", i);
  expect_error(post(R"({"inputs": {"question": "a", "context": "x")" + names + "}}"), 400,
               "the body has more than 10000 values");
  expect_error(post(R"({"inputs": {"question": "a", "context": "x"})" + names + "}"), 400,
               "the body has more than 10000 values");
  expect_error(post(R"({"inputs": [)" + std::string(500000, '0') + "1]}"), 400, "not JSON");
}

// Written out for the message, these would overflow the stack (found by
// tests/fuzz/serve_request_fuzz.cc's seeds).
TEST_F(Service, DeeplyNestedValuesAreRefused) {
  for (const std::size_t depth : {std::size_t{40}, std::size_t{400000}}) {
    const std::string nested = std::string(depth, '[') + std::string(depth, ']');
    for (const char* begin : {R"({"inputs": {}, "parameters": {"top_k": )", R"({"inputs": )"})
      expect_error(post(begin + nested), 400, "nested more than 32 deep");
  }
  const std::string deep = std::string(20, '[') + std::string(20, ']');
  expect_error(post(R"({"inputs": {}, "parameters": {"top_k": )" + deep + "}}"), 400,
               "parameters.top_k is an array, expected an integer from 1 to 1000");
  expect_error(post(R"({"inputs": {}, "parameters": {"handle_impossible_answer": )" + deep + "}}"),
               400, "is an array, expected true or false");
  expect_error(post(R"({"inputs": )" + deep + "}"), 400, "inputs[0] is a array");
  expect_error(
      post(R"({"inputs": {}, "parameters": {"top_k": ")" + std::string(5000, 'x') + "\"}}"), 400,
      "xxx…, expected an integer");
}

TEST_F(Service, BytesThatAreNoTextAreNotEchoed) {
  const auto get = [&](const std::string& path, const std::string& host) {
    return service().handle(
        {.method = "GET", .path = path, .host = host, .origin = "", .body = ""});
  };
  expect_error(get("/", "\xff.example"), 400, "the host '?.example' is not this server");
  expect_error(get("/\xfe", "localhost"), 404, "unknown path '/?'");
}

TEST_F(Service, TopKGivesAListAndParametersAreUsed) {
  const auto response = post(
      R"({"inputs": {"question": "Where?", "context": "x"}, "parameters": {"top_k": 5, "max_answer_len": 3,
          "max_seq_len": 100, "doc_stride": 10, "handle_impossible_answer": true}})");
  EXPECT_EQ(json::parse(response.body),
            json::parse(R"([{"score": 0.75, "start": 4, "end": 8, "answer": "Oslo"},
                            {"score": 0.25, "start": 0, "end": 0, "answer": ""}])"));
  EXPECT_EQ(options_.n_best, 5u);
  EXPECT_EQ(options_.max_seq_length, 100u);
  EXPECT_EQ(options_.doc_stride, 10u);
  EXPECT_EQ(options_.postprocess.max_answer_length, 3u);
  EXPECT_TRUE(options_.postprocess.version_2_with_negative);
}

TEST_F(Service, SeveralQuestionsGiveAListOfAnswers) {
  const auto response =
      post(R"({"inputs": [{"question": "a", "context": "x"}, {"question": "b", "context": "y"}]})");
  const json answers = json::parse(response.body);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1]["answer"], "Oslo");
  EXPECT_EQ(context_, "y");
}

TEST_F(Service, NamesWhatIsWrong) {
  expect_error(post("{\"inputs\":"), 400, "not JSON");
  expect_error(post("\xff"), 400, "not JSON");
  expect_error(post("[]"), 400, "no 'inputs'");
  expect_error(post(R"({"inputs": "x"})"), 400, "inputs is a string, expected an object");
  expect_error(post(R"({"inputs": {"question": "x"}})"), 400, "inputs has no 'context'");
  expect_error(post(R"({"inputs": [{"question": 3, "context": "x"}]})"), 400,
               "inputs[0].question is a number, expected a string");
  expect_error(post(R"({"inputs": []})"), 400, "0 questions, expected 1 to 32");
  expect_error(post(R"({"inputs": {"question": "a", "context": "x"}, "parameters": {"top_k": 0}})"),
               400, "parameters.top_k is 0, expected an integer from 1");
  expect_error(post(R"({"inputs": {"question": "a", "context": "x"}, "parameters": {"topp": 1}})"),
               400, "parameters.topp is not known");
  expect_error(post(R"({"inputs": {"question": "fail", "context": "x"}})"), 400, "cannot");
}

TEST_F(Service, ServesThePageAndNothingElse) {
  const auto get = [&](const std::string& path, const std::string& method = "GET") {
    return service().handle(
        {.method = method, .path = path, .host = "127.0.0.1", .origin = "", .body = ""});
  };
  EXPECT_THAT(get("/").body, HasSubstr("<title>tandem"));
  EXPECT_EQ(get("/page.js").content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(json::parse(get("/info").body)["model"], "a/model");
  EXPECT_EQ(get("/health").body, R"({"status": "ok"})");
  expect_error(get("/../etc/passwd"), 404, "unknown path '/../etc/passwd'");
  const auto refused = get("/", "DELETE");
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(refused.allow, "GET, HEAD, POST");
}

// A page elsewhere that calls this server by a name of its own, or lets the visitor's browser ask.
TEST_F(Service, RefusesOtherHostsAndOtherPages) {
  const auto from = [&](const std::string& host, const std::string& origin, bool loopback_only) {
    return service(loopback_only)
        .handle({.method = "GET", .path = "/", .host = host, .origin = origin, .body = ""})
        .status;
  };
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080"})
    EXPECT_EQ(from(host, "", true), 200) << host;
  for (const char* host :
       {"evil.example", "localhost.evil.example:8080", "", "[::2]", "10.0.0.7", "127.evil.example",
        "localhost:80:80", "localhost:8x", "[::1", "[::1]x", "localhost, localhost", "a@localhost"})
    EXPECT_EQ(from(host, "", true), 400) << host;
  EXPECT_EQ(from("localhost:1", "http://localhost:1", true), 200);
  EXPECT_EQ(from("localhost:1", "http://evil.example", true), 403);
  EXPECT_EQ(from("localhost:1", "null", true), 403);
}

// A server for all interfaces is reached by its addresses and by the names that it was given, not
// by whatever a name server elsewhere has for it.
TEST_F(Service, KnowsItsNames) {
  const auto from = [&](const std::string& host, std::vector<std::string> allowed) {
    return service(false, std::move(allowed))
        .handle({.method = "GET", .path = "/", .host = host, .origin = "", .body = ""})
        .status;
  };
  for (const char* host : {"10.0.0.7:8080", "[fd00::7]:8080", "localhost", "Node7:8080", "node7"})
    EXPECT_EQ(from(host, {"node7", "B.example"}), 200) << host;
  EXPECT_EQ(from("b.Example", {"node7", "B.example"}), 200);
  for (const char* host : {"evil.example", "node7.evil.example", "node7@evil.example", ""})
    EXPECT_EQ(from(host, {"node7"}), 400) << host;
  EXPECT_EQ(from("evil.example", {"*"}), 200);
}

TEST_F(Service, OnlyQuestionsAreComputed) {
  const auto at_once = [&](const std::string& method, const std::string& path) {
    return service().handle_at_once(
        {.method = method, .path = path, .host = "localhost", .origin = "", .body = "{"});
  };
  for (const char* path : {"/", "/health", "/info", "/other"})
    EXPECT_TRUE(at_once("GET", path)) << path;
  EXPECT_TRUE(at_once("POST", "/health"));
  EXPECT_FALSE(at_once("POST", "/"));
  EXPECT_FALSE(at_once("POST", "/models/x"));
}

// The server, which knows the reason, chooses the message.
TEST_F(Service, QuestionsAreGivenUpWhenThatIsRequested) {
  std::stop_source stop;
  const HttpRequest request{.method = "POST",
                            .path = "/",
                            .host = "localhost",
                            .origin = "",
                            .body = R"({"inputs": {"question": "a", "context": "x"}})"};
  EXPECT_EQ(service().handle(request, stop.get_token()).status, 200);
  stop.request_stop();
  EXPECT_THROW(service().handle(request, stop.get_token()), Interrupted);
}

}  // namespace
}  // namespace tandem::apps
