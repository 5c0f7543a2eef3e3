#include "apps/serve/rerank_endpoint.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "apps/serve/openai_forms.h"
#include "apps/serve/request_json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

// A document of Cohere's form may be an object with a text.
std::string passage_of(const std::string& name, const json& value, bool objects) {
  if (objects && value.is_object())
    return text_entry(value, "text", name, "a text or an object with text");
  return string_value(name, value);
}

std::vector<std::string> passages_of(const json& body, const std::string& key,
                                     std::size_t max_texts, bool objects) {
  if (!body.contains(key) || !body[key].is_array())
    raise<DataError>("the body has no list '{}'; expected a list of texts", key);
  const json& list = body[key];
  if (list.empty() || list.size() > max_texts)
    raise<DataError>("{} has {} texts, expected 1 to {}", key, list.size(), max_texts);
  std::vector<std::string> passages;
  for (std::size_t i = 0; i < list.size(); ++i)
    passages.push_back(passage_of(fmt::format("{}[{}]", key, i), list[i], objects));
  return passages;
}

// --- text-embeddings-inference ---

ordered_json rank_texts(const json& body, std::size_t max_texts, const FindScores& find,
                        const std::stop_token& cancelled) {
  RerankRequest request{.query = {}, .passages = {}, .passages_name = "texts", .truncate = false};
  bool return_text = false;
  for (const auto& [name, value] : body.items()) {
    if (name == "texts" || (value.is_null() && name != "query")) continue;
    if (name == "query") {
      request.query = string_value(name, value);
    } else if (name == "raw_scores") {
      request.raw_scores = boolean_value(name, value);
    } else if (name == "return_text") {
      return_text = boolean_value(name, value);
    } else if (name == "truncate") {
      request.truncate = boolean_value(name, value);
    } else if (name == "truncation_direction") {
      if (value != "right" && value != "Right")
        raise<DataError>("{} is {}, expected right: the end is cut", name, shown(value));
    } else {
      raise<DataError>(
          "{} is unknown, expected query, texts, raw_scores, return_text, truncate or "
          "truncation_direction",
          name.substr(0, 80));
    }
  }
  request.passages = passages_of(body, "texts", max_texts, /*objects=*/false);
  const PassageScores found = find(request, cancelled);
  ordered_json ranked = ordered_json::array();
  for (const std::size_t i : best_passages(found.scores, kAll)) {
    ordered_json entry = {{"index", i}};
    if (return_text) entry["text"] = request.passages[i];
    entry["score"] = found.scores[i];
    ranked.push_back(std::move(entry));
  }
  return ranked;
}

ordered_json typed_error(int status, const std::string& message) {
  const char* type = status == 429 || status == 503 ? "Overloaded"
                     : status >= 500                ? "Backend"
                                                    : "Validation";
  return {{"error", message}, {"error_type", type}};
}

// --- Jina and Cohere ---

struct DocumentsRequest {
  RerankRequest rerank;
  std::size_t top_n = kAll;
  bool return_documents = false;
};

DocumentsRequest documents_request(const json& body, std::size_t max_texts) {
  DocumentsRequest request;
  for (const auto& [name, value] : body.items()) {
    if (name == "documents" || (value.is_null() && name != "query")) continue;
    if (name == "query") {
      request.rerank.query = string_value(name, value);
    } else if (name == "top_n") {
      if (!value.is_number_integer() || value.get<std::int64_t>() < 1)
        raise<DataError>("top_n is {}, expected a positive integer", shown(value));
      request.top_n = static_cast<std::size_t>(value.get<std::int64_t>());
    } else if (name == "return_documents") {
      request.return_documents = boolean_value(name, value);
    } else if (name == "model") {
      string_value(name, value);  // one model is served, under any name
    } else {
      raise<DataError>("{} is unknown, expected model, query, documents, top_n or return_documents",
                       name.substr(0, 80));
    }
  }
  request.rerank.passages = passages_of(body, "documents", max_texts, /*objects=*/true);
  request.rerank.passages_name = "documents";
  return request;
}

ordered_json rank_documents(const json& body, const std::string& model, std::size_t max_texts,
                            const FindScores& find, const std::stop_token& cancelled) {
  const DocumentsRequest request = documents_request(body, max_texts);
  const PassageScores found = find(request.rerank, cancelled);
  ordered_json results = ordered_json::array();
  for (const std::size_t i : best_passages(found.scores, request.top_n)) {
    ordered_json entry = {{"index", i}, {"relevance_score", found.scores[i]}};
    if (request.return_documents) entry["document"] = {{"text", request.rerank.passages[i]}};
    results.push_back(std::move(entry));
  }
  return {{"model", model},
          {"results", results},
          {"usage", {{"prompt_tokens", found.tokens}, {"total_tokens", found.tokens}}}};
}

}  // namespace

void add_reranking(Endpoint& endpoint, const std::string& model, std::size_t max_texts,
                   FindScores find_scores) {
  using std::stop_token;
  const auto texts = [=](const json& body, const stop_token& cancelled) {
    return rank_texts(body, max_texts, find_scores, cancelled);
  };
  const auto documents = [=](const json& body, const stop_token& cancelled) {
    return rank_documents(body, model, max_texts, find_scores, cancelled);
  };
  endpoint.routes.push_back({.path = "/rerank",
                             .key = "query",
                             .example = R"({"query": "a text", "texts": ["a text", "another"]})",
                             .answer = texts,
                             .error = typed_error});
  endpoint.routes.push_back(
      {.path = "/v1/rerank",
       .key = "query",
       .example = R"({"query": "a text", "documents": ["a text", "another"]})",
       .answer = documents});
  endpoint.documents.merge(openai_models(model));
  endpoint.bare_input_key = "query";
  endpoint.answer = [texts, labels = std::move(endpoint.answer)](const json& body,
                                                                 const stop_token& cancelled) {
    const json& inputs = body["inputs"];
    const bool ranks = inputs.is_object() && inputs.contains("query");
    return ranks ? texts(inputs, cancelled) : labels(body, cancelled);
  };
}

}  // namespace tandem::apps
