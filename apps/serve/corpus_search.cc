#include "apps/serve/corpus_search.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <initializer_list>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::apps {
namespace {

using tasks::ranking::Similarity;

// Whether the embeddings have length 1, so that the cosine similarity is their product.
bool normalizes(const tasks::ranking::SimilarityFunction& function) {
  return function.similarity == Similarity::kCosine;
}

const tasks::ranking::SimilarityFunction& searched_by(
    const tasks::ranking::SimilarityFunction& function) {
  return normalizes(function) ? tasks::ranking::similarity_function(Similarity::kDot) : function;
}

// The first that is not empty. sentence-transformers stops at the first there is, which is always
// an empty `document` where a model has only `passage`.
std::string prompt_of(const models::SentenceFiles& files,
                      std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = files.prompts.find(name);
    if (found != files.prompts.end() && !found->second.empty()) return name;
  }
  return *names.begin();
}

// One line that grows on a terminal; elsewhere the last one.
class Progress {
 public:
  explicit Progress(std::size_t texts) : texts_(texts) {}
  void show(std::size_t done) const {
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    if (!terminal && done < texts_) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    fmt::print(stderr, "{}tandem serve: {} of {} texts embedded in {:.1f} s{}",
               terminal ? "\r" : "", done, texts_, seconds, done == texts_ ? "\n" : "");
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::size_t texts_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

CorpusSearch::CorpusSearch(Embedder& embedder, const std::string& path,
                           const Environment& environment)
    : embedder_(embedder),
      name_(path == "-" ? "standard input" : std::filesystem::path(path).filename().string()),
      similarity_(tasks::ranking::similarity_function(embedder.files().similarity)),
      texts_(read_corpus(path)) {
  search_.emplace(searched_by(similarity_), embed_texts(), embedder.size(),
                  embedder.model().num_threads(), environment);
}

std::vector<float> CorpusSearch::embed_texts() {
  const EmbedRequest request{
      .prompt_name = prompt_of(embedder_.files(), {"document", "passage", "corpus"}),
      .normalize = normalizes(similarity_)};
  std::vector<float> embeddings;
  embeddings.reserve(texts_.size() * embedder_.size());
  const Progress progress(texts_.size());
  for (std::size_t first = 0; first < texts_.size(); first += kTextsAtOnce) {
    const std::size_t end = std::min(first + kTextsAtOnce, texts_.size());
    std::vector<TextToEmbed> some;
    for (std::size_t i = first; i < end; ++i)
      some.push_back({.name = fmt::format("line {}", texts_[i].line), .text = texts_[i].text});
    const Embeddings found = embedder_.answer(some, request, {});
    embeddings.insert(embeddings.end(), found.values.begin(), found.values.end());
    progress.show(end);
  }
  return embeddings;
}

std::vector<FoundText> CorpusSearch::find(const std::string& query, std::size_t top_k,
                                          const std::stop_token& cancelled) {
  const EmbedRequest request{.prompt_name = prompt_of(embedder_.files(), {"query"}),
                             .normalize = normalizes(similarity_)};
  const TextToEmbed text{.name = "query", .text = query};
  Embeddings embedding = embedder_.answer(std::span(&text, 1), request, cancelled);
  const std::size_t most = std::min(top_k, texts_.size());
  std::vector<FoundText> found;
  for (const auto& hit : search_->find(std::move(embedding.values), most, cancelled)) {
    const CorpusText& text_found = texts_[hit.document];
    found.push_back(
        {.index = hit.document, .id = text_found.id, .text = text_found.text, .score = hit.score});
  }
  return found;
}

}  // namespace tandem::apps
