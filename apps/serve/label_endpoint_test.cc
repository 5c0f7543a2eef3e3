// Texts and tokens to label, without sockets and without a model.
#include "apps/serve/label_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Note what they were asked.
class LabelEndpoints : public ::testing::Test {
 protected:
  Endpoint texts() {
    return text_endpoint(
        {.max_windows = 7}, /*max_texts=*/2, {"bad", "good"},
        [this](std::span<const LabelledText> texts, const LabelOptions& options,
               std::optional<Scores> scores, const std::stop_token&) {
          texts_.assign(texts.begin(), texts.end());
          options_ = options;
          scores_ = scores;
          return std::vector<std::vector<LabelScore>>(texts.size(), {{1, 0.75}, {0, 0.25}});
        });
  }
  Endpoint tokens() {
    return token_endpoint(
        {}, aggregation_, /*max_texts=*/2, {"B-PER", "I-PER", "O"},
        [this](std::span<const LabelledText> texts, const LabelOptions& options,
               const std::stop_token&) {
          texts_.assign(texts.begin(), texts.end());
          options_ = options;
          const std::vector<LabelledToken> found = {
              {.begin = 0, .end = 1, .probabilities = {0.75, 0, 0.25}},
              {.begin = 1, .end = 3, .joins_word = true, .probabilities = {0.25, 0, 0.75}},
              {.begin = 4, .end = 9, .probabilities = {0.25, 0, 0.75}}};
          return std::vector<std::vector<LabelledToken>>(texts.size(), found);
        });
  }
  HttpResponse post(Endpoint endpoint, const std::string& body) {
    return InferenceService({.model = "a/model", .allowed_hosts = {}}, std::move(endpoint))
        .handle({.method = "POST", .path = "/", .host = "localhost:1", .origin = "", .body = body});
  }
  void expect_error(const HttpResponse& response, const std::string& message) {
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(json::parse(response.body)["error"].get<std::string>(), HasSubstr(message));
  }

  std::vector<LabelledText> texts_;
  LabelOptions options_;
  std::optional<Scores> scores_;
  Aggregation aggregation_ = Aggregation::kFirst;
};

TEST_F(LabelEndpoints, TextsInTheHubsShape) {
  const auto response = post(texts(), R"({"inputs": "fine"})");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body,
            R"([[{"label": "good", "score": 0.75}, {"label": "bad", "score": 0.25}]])");
  EXPECT_EQ(texts_[0].text, "fine");
  EXPECT_EQ(options_.max_windows, 7u);
  EXPECT_EQ(scores_, std::nullopt);
}

// Clients take the first element of the answer, whether they sent a text, a pair or a list of one.
TEST_F(LabelEndpoints, ASingleInputGivesAListOfOneList) {
  for (const char* inputs : {R"("fine")", R"({"text": "fine"})", R"(["fine"])",
                             R"({"text": "fine", "text_pair": "weather"})"}) {
    for (const char* parameters : {"{}", "null", R"({"top_k": null, "function_to_apply": null})"}) {
      const auto response =
          post(texts(), fmt::format(R"({{"inputs": {}, "parameters": {}}})", inputs, parameters));
      EXPECT_EQ(response.body,
                R"([[{"label": "good", "score": 0.75}, {"label": "bad", "score": 0.25}]])")
          << inputs << parameters;
    }
  }
}

// huggingface_hub's zero_shot_classification and sentence_similarity, sent to a model that cannot
// answer them.
TEST_F(LabelEndpoints, RequestsOfOtherTasksAreRefused) {
  expect_error(post(texts(), R"({"inputs": "a", "parameters": {"candidate_labels": ["x", "y"]}})"),
               "parameters.candidate_labels is not known; known are top_k and function_to_apply");
  expect_error(post(tokens(), R"({"inputs": "a", "parameters": {"candidate_labels": ["x"]}})"),
               "parameters.candidate_labels is not known");
  expect_error(post(texts(), R"({"inputs": {"source_sentence": "a", "sentences": ["b"]}})"),
               "inputs has no 'text'");
  expect_error(post(texts(), R"({"question": "Who?", "context": "a"})"), "no 'inputs'");
}

TEST_F(LabelEndpoints, ListsPairsAndParameters) {
  const auto response = post(texts(), R"({"inputs": ["a", {"text": "b", "text_pair": "c"}],
      "parameters": {"top_k": 1, "function_to_apply": "sigmoid"}})");
  EXPECT_EQ(response.body,
            R"([[{"label": "good", "score": 0.75}], [{"label": "good", "score": 0.75}]])");
  EXPECT_EQ(texts_[1].text, "b");
  EXPECT_EQ(texts_[1].pair, "c");
  EXPECT_EQ(texts_[1].name, "inputs[1]");
  EXPECT_EQ(scores_, Scores::kSigmoid);
}

TEST_F(LabelEndpoints, TokensInTheHubsShape) {
  const auto response = post(tokens(), R"({"inputs": "Ida sings"})");
  EXPECT_EQ(response.body,
            R"([{"entity_group": "PER", "score": 0.75, "word": "Ida", "start": 0, "end": 3}])");
  EXPECT_EQ(post(tokens(), R"({"inputs": ["Ida sings"], "parameters": {"ignore_labels": ["PER"],
      "stride": 5, "aggregation_strategy": "first"}})")
                .body,
            R"([[{"entity_group": "O", "score": 0.75, "word": "sings", "start": 4, "end": 9}]])");
  EXPECT_EQ(options_.stride, 5u);
}

// The server's strategy holds for requests that name none.
TEST_F(LabelEndpoints, WordsAreWholeUnlessTheRequestStatesOtherwise) {
  const auto words_of = [&](const std::string& parameters) {
    std::string found;
    const auto response =
        post(tokens(), R"({"inputs": "Ida sings", "parameters": )" + parameters + "}");
    for (const json& entity : json::parse(response.body))
      found += (entity.contains("entity") ? entity["entity"] : entity["entity_group"])
                   .get<std::string>() +
               "=" + entity["word"].get<std::string>() + " ";
    return found;
  };
  EXPECT_EQ(words_of("{}"), "PER=Ida ");
  EXPECT_EQ(words_of(R"({"aggregation_strategy": "max"})"), "PER=Ida ");
  EXPECT_EQ(words_of(R"({"aggregation_strategy": "simple"})"), "PER=I ");
  EXPECT_EQ(words_of(R"({"aggregation_strategy": "none"})"), "B-PER=I ");
  aggregation_ = Aggregation::kSimple;
  EXPECT_EQ(words_of("{}"), "PER=I ");
  EXPECT_EQ(words_of(R"({"aggregation_strategy": null})"), "PER=I ");
  EXPECT_EQ(words_of(R"({"aggregation_strategy": "first"})"), "PER=Ida ");
}

TEST_F(LabelEndpoints, ErrorsOfBadRequestsStateWhatIsExpected) {
  expect_error(post(texts(), R"({"input": "a"})"), R"(no 'inputs'; expected {"inputs": "a text"})");
  expect_error(post(texts(), R"({"inputs": 3})"), "inputs is a number, expected a text");
  expect_error(post(texts(), R"({"inputs": ["a", "b", "c"]})"), "3 texts, expected 1 to 2");
  expect_error(post(texts(), R"({"inputs": {"text": "a", "text_pair": 1}})"),
               "inputs.text_pair is a number, expected a string");
  expect_error(post(texts(), R"({"inputs": "a", "parameters": {"top_k": 0}})"),
               "parameters.top_k is 0, expected an integer from 1");
  expect_error(post(texts(), R"({"inputs": "a", "parameters": {"function_to_apply": "tanh"}})"),
               "expected softmax, sigmoid or none");
  expect_error(post(texts(), R"({"inputs": "a", "parameters": {"stride": 1}})"),
               "parameters.stride is not known; known are top_k and function_to_apply");
  expect_error(post(tokens(), R"({"inputs": {"text": "a"}})"),
               "inputs is a object, expected a text");
  expect_error(post(tokens(), R"({"inputs": "a", "parameters": {"aggregation_strategy": "mode"}})"),
               "expected one of none, simple, first, average, max");
  expect_error(post(tokens(), R"({"inputs": "a", "parameters": {"ignore_labels": "O"}})"),
               "expected a list of labels");
}

TEST_F(LabelEndpoints, InfoNamesTaskAndLabels) {
  const InferenceService service({.model = "a/model", .allowed_hosts = {}}, texts());
  const auto response = service.handle(
      {.method = "GET", .path = "/info", .host = "localhost:1", .origin = "", .body = ""});
  EXPECT_EQ(response.body,
            R"({"model": "a/model", "task": "text-classification", "parameters": 0, )"
            R"("labels": ["bad", "good"]})");
}

}  // namespace
}  // namespace tandem::apps
