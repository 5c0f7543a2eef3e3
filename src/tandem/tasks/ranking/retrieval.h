// Scores of a search, as sentence-transformers' InformationRetrievalEvaluator computes them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem::tasks::ranking {

// The cuts at which a search is judged; defaults are sentence-transformers'.
struct RetrievalCuts {
  std::vector<std::size_t> accuracy = {1, 3, 5, 10};
  std::vector<std::size_t> precision_recall = {1, 3, 5, 10};
  std::vector<std::size_t> mrr = {10};
  std::vector<std::size_t> ndcg = {10};
  std::vector<std::size_t> map = {100};
  std::size_t largest() const;  // hits that a search must return
};

// Result of a search for one query.
struct QueryHits {
  std::vector<bool> is_relevant;       // relevance of each hit, the best first
  std::size_t relevant_documents = 0;  // those of the query in the corpus's judgements; at least 1
};

// One value for each cut.
struct RetrievalScores {
  std::vector<double> accuracy, precision, recall, mrr, ndcg, map;
};

RetrievalScores retrieval_scores(const RetrievalCuts& cuts, std::span<const QueryHits> queries);

}  // namespace tandem::tasks::ranking
