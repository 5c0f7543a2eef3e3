#include "tandem/tasks/ranking/search.h"

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/kernels/linear.h"

namespace tandem::tasks::ranking {
namespace {

// Tiles have one shape, so that a score does not depend on how the corpus is cut.
constexpr std::size_t kQueries = 64;
constexpr std::size_t kDocuments = 512;

// Copies `count` texts from `first` on into a tile of `room` rows: unit vectors for the cosine, and
// zeros behind the last text.
void load(const Embeddings& from, std::size_t first, std::size_t room, bool unit,
          ThreadPool& threads, std::vector<float>& tile) {
  const std::size_t count = std::min(room, from.texts() - first);
  tile.assign(room * from.width, 0.0f);
  threads.parallel_for(count, [&](std::size_t row, int) {
    const std::span<const float> text = from.of(first + row);
    const auto scale = unit ? static_cast<float>(1 / length(text)) : 1.0f;
    for (std::size_t i = 0; i < text.size(); ++i) tile[row * from.width + i] = text[i] * scale;
  });
}

}  // namespace

Search::Search(const SimilarityFunction& function, const Embeddings& queries, std::size_t top_k,
               BreakTie before)
    : function_(function),
      queries_(queries),
      top_k_(top_k),
      before_(std::move(before)),
      hits_(queries.texts()),
      scores_(kQueries * kDocuments) {
  TANDEM_CHECK(top_k > 0);
}

bool Search::is_better(const Hit& a, const Hit& b) const {
  return a.score != b.score ? a.score > b.score : before_(a.document, b.document);
}

void Search::keep(std::size_t query, const Hit& hit) {
  std::vector<Hit>& heap = hits_[query];
  const auto worst_in_front = [this](const Hit& a, const Hit& b) { return is_better(a, b); };
  if (heap.size() == top_k_) {
    if (!is_better(hit, heap.front())) return;
    std::pop_heap(heap.begin(), heap.end(), worst_in_front);
    heap.pop_back();
  }
  heap.push_back(hit);
  std::push_heap(heap.begin(), heap.end(), worst_in_front);
}

void Search::score_tile(const Embeddings& documents, std::size_t first_query,
                        std::size_t first_document, const kernels::Context& context) {
  const std::size_t queries = std::min(kQueries, queries_.texts() - first_query);
  const std::size_t count = std::min(kDocuments, documents.texts() - first_document);
  if (!function_.is_distance) {
    kernels::linear_forward<float>(context, kQueries, kDocuments, queries_.width, left_.data(),
                                   right_.data(), nullptr, scores_.data());
    return;
  }
  context.threads.parallel_for(queries, [&](std::size_t query, int) {
    for (std::size_t k = 0; k < count; ++k)
      scores_[query * kDocuments + k] = -static_cast<float>(function_.pair->value(
          queries_.of(first_query + query), documents.of(first_document + k)));
  });
}

void Search::add(const Embeddings& documents, const kernels::Context& context) {
  TANDEM_CHECK(documents.width == queries_.width);
  const bool unit = function_.similarity == Similarity::kCosine;
  for (std::size_t document = 0; document < documents.texts(); document += kDocuments) {
    load(documents, document, kDocuments, unit, context.threads, right_);
    const std::size_t count = std::min(kDocuments, documents.texts() - document);
    for (std::size_t query = 0; query < queries_.texts(); query += kQueries) {
      load(queries_, query, kQueries, unit, context.threads, left_);
      score_tile(documents, query, document, context);
      context.threads.parallel_for(
          std::min(kQueries, queries_.texts() - query), [&](std::size_t row, int) {
            for (std::size_t k = 0; k < count; ++k)
              keep(query + row, {scores_[row * kDocuments + k], documents_ + document + k});
          });
    }
  }
  documents_ += documents.texts();
}

std::vector<std::vector<Hit>> Search::take_hits() {
  for (std::vector<Hit>& hits : hits_)
    std::sort(hits.begin(), hits.end(),
              [this](const Hit& a, const Hit& b) { return is_better(a, b); });
  return std::move(hits_);
}

}  // namespace tandem::tasks::ranking
