// Passages to rank for a query, in the forms of text-embeddings-inference and of Jina and Cohere.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "apps/answering/reranking.h"
#include "apps/serve/inference_service.h"

namespace tandem::apps {

// Reranker::score, or a test's. Called by several threads at once.
using FindScores =
    std::function<PassageScores(const RerankRequest& request, const std::stop_token&)>;

// Adds to the endpoint of a model with one label:
// POST /, /rerank: {"query": "a text", "texts": ["a", "b"], "raw_scores": false,
//   "return_text": false, "truncate": false} → [{"index": 1, "score": 0.9, "text": "b"}, …], the
//   best first. Errors are {"error": message, "error_type": "Validation"}.
// POST /v1/rerank: {"query": "a text", "documents": ["a", {"text": "b"}], "top_n": 1,
//   "return_documents": true} → {"model": …, "results": [{"index": 1, "relevance_score": 0.9,
//   "document": {"text": "b"}}], "usage": {"prompt_tokens": …, "total_tokens": …}}.
//   model: the name in answers.   max_texts: most in one request.
void add_reranking(Endpoint& endpoint, const std::string& model, std::size_t max_texts,
                   FindScores find_scores);

}  // namespace tandem::apps
