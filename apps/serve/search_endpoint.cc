#include "apps/serve/search_endpoint.h"

#include "apps/serve/request_json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kDefaultTopK = 10;
constexpr std::int64_t kMostTopK = 1000;

struct SearchRequest {
  std::string query;
  std::size_t top_k = kDefaultTopK;
};

SearchRequest search_request(const json& body) {
  SearchRequest request;
  for (const auto& [name, value] : body.items()) {
    if (name == "query") {
      if (!value.is_string()) raise<DataError>("query is a {}, expected a text", value.type_name());
      request.query = value.get<std::string>();
    } else if (name == "top_k") {
      if (!value.is_null()) request.top_k = count_value(name, value, 1, kMostTopK);
    } else {
      raise<DataError>("{} is not known; known are query and top_k", name.substr(0, 80));
    }
  }
  return request;
}

}  // namespace

Route search_route(std::size_t max_bytes, FindTexts find_texts) {
  const auto answer = [=](const json& body, const std::stop_token& cancelled) {
    const SearchRequest request = search_request(body);
    ordered_json all = ordered_json::array();
    std::size_t bytes = 0;
    for (FoundText& found : find_texts(request.query, request.top_k, cancelled)) {
      bytes += found.id.size() + found.text.size();
      if (bytes > max_bytes)
        raise<DataError>("the texts found are longer than {} bytes; send a smaller top_k",
                         max_bytes);
      all.push_back({{"index", found.index},
                     {"id", std::move(found.id)},
                     {"text", std::move(found.text)},
                     {"score", found.score}});
    }
    return all;
  };
  return {.path = "/search",
          .key = "query",
          .example = R"({"query": "a text", "top_k": 10})",
          .answer = answer};
}

}  // namespace tandem::apps
