// Exact search: the most similar documents of a corpus for each query.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tandem/kernels/context.h"
#include "tandem/tasks/ranking/similarity_functions.h"

namespace tandem::tasks::ranking {

struct Hit {
  float score = 0;           // more is better; a distance is negated
  std::size_t document = 0;  // index in the corpus
};

// Whether document a comes before b where scores are equal.
using BreakTie = std::function<bool(std::size_t a, std::size_t b)>;

// Finds the best `top_k` documents of each query; the corpus comes in pieces, in order. Memory
// depends on queries, top_k and one tile, not on the corpus. The result depends neither on threads
// nor on the cut into pieces.
class Search {
 public:
  Search(const SimilarityFunction& function, const Embeddings& queries, std::size_t top_k,
         BreakTie before);
  // The next documents of the corpus.
  void add(const Embeddings& documents, const kernels::Context& context);
  // The hits of each query, the best first.
  std::vector<std::vector<Hit>> take_hits();

 private:
  bool is_better(const Hit& a, const Hit& b) const;
  void score_tile(const Embeddings& documents, std::size_t first_query, std::size_t first_document,
                  const kernels::Context& context);
  void keep(std::size_t query, const Hit& hit);

  const SimilarityFunction& function_;
  Embeddings queries_;
  std::size_t top_k_;
  BreakTie before_;
  std::size_t documents_ = 0;                 // added so far
  std::vector<std::vector<Hit>> hits_;        // for each query, a heap with the worst hit in front
  std::vector<float> left_, right_, scores_;  // one tile
};

}  // namespace tandem::tasks::ranking
