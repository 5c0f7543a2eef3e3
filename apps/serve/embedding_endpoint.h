// Texts to embed in the forms of Hugging Face's inference API, text-embeddings-inference and
// OpenAI.
#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <string>

#include "apps/answering/embedding.h"
#include "apps/serve/inference_service.h"

namespace tandem::apps {

// Embedder::answer, or a test's. Called by several threads at once.
using FindEmbeddings = std::function<Embeddings(
    std::span<const TextToEmbed> texts, const EmbedRequest& request, const std::stop_token&)>;

// POST /, /embed: {"inputs": "a text" | ["a", "b"], "normalize": true, "truncate": true,
//   "prompt_name": "query", "dimensions": 128} → [[…], […]], a list for a single text, too.
// POST /, /similarity: {"inputs": {"source_sentence": …, "sentences": [a, b]}} → [cosine, cosine].
// POST /v1/embeddings: {"input": "a text" | ["a", "b"], "encoding_format": "float" | "base64",
//   "dimensions": 128} → {"object": "list", "data": [{"object": "embedding", "index": 0,
//   "embedding": …}], "model": …, "usage": {…}}; base64: of little-endian float32. Errors are
//   {"error": {"message": …, "type": …, "param": …, "code": …}}.
//   model: the name in answers.   max_texts: most in one request.   info: for GET /info.
Endpoint embedding_endpoint(const std::string& model, std::size_t max_texts,
                            nlohmann::ordered_json info, FindEmbeddings find_embeddings);

}  // namespace tandem::apps
