// The texts of a file, found by a bi-encoder: what `tandem serve --corpus FILE` answers.
#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "apps/answering/embedding.h"
#include "apps/answering/text_search.h"
#include "apps/serve/search_corpus.h"
#include "apps/serve/search_endpoint.h"

namespace tandem::apps {

// Keeps texts and embeddings in memory. Queries get the model's prompt "query", texts the first of
// "document", "passage" and "corpus" that is not empty.
class CorpusSearch {
 public:
  // Reads and embeds the file, with a line of progress on stderr. The embedder outlives it. Throws
  // what read_corpus() throws, and ConfigError for an unknown similarity function of the model.
  CorpusSearch(Embedder& embedder, const std::string& path, const Environment& environment);

  // The most similar texts by the model's similarity function; a distance is negated. Thread-safe.
  std::vector<FoundText> find(const std::string& query, std::size_t top_k,
                              const std::stop_token& cancelled);
  std::size_t texts() const { return texts_.size(); }
  // "corpus.jsonl"
  const std::string& name() const { return name_; }

 private:
  std::vector<float> embed_texts();

  Embedder& embedder_;
  std::string name_;
  const tasks::ranking::SimilarityFunction& similarity_;
  std::vector<CorpusText> texts_;
  std::optional<TextSearch> search_;
};

}  // namespace tandem::apps
