// Queries over a corpus of texts, for programs and the page.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "apps/serve/inference_service.h"

namespace tandem::apps {

struct FoundText {
  std::size_t index = 0;  // in the corpus
  std::string id;
  std::string text;
  float score = 0;
};

// The best texts, the best first. Called by several threads at once.
using FindTexts = std::function<std::vector<FoundText>(const std::string& query, std::size_t top_k,
                                                       const std::stop_token& cancelled)>;

// POST /search: {"query": "a text", "top_k": 10} → [{"index": 7, "id": "d7", "text": …, "score":
// 0.71}, …]. top_k: 1 to 1000. Fewer texts than top_k are not an error. max_bytes: size of the
// texts of an answer.
Route search_route(std::size_t max_bytes, FindTexts find_texts);

}  // namespace tandem::apps
