#include "tandem/tasks/ranking/retrieval.h"

#include <algorithm>
#include <cmath>

#include "tandem/tasks/ranking/numpy_mean.h"

namespace tandem::tasks::ranking {
namespace {

std::size_t hits_within(const QueryHits& query, std::size_t cut) {
  const auto end = query.is_relevant.begin() +
                   static_cast<std::ptrdiff_t>(std::min(cut, query.is_relevant.size()));
  return static_cast<std::size_t>(std::count(query.is_relevant.begin(), end, true));
}

double accuracy(const QueryHits& query, std::size_t cut) {
  return hits_within(query, cut) > 0 ? 1 : 0;
}

double precision(const QueryHits& query, std::size_t cut) {
  return static_cast<double>(hits_within(query, cut)) / static_cast<double>(cut);
}

double recall(const QueryHits& query, std::size_t cut) {
  return static_cast<double>(hits_within(query, cut)) /
         static_cast<double>(query.relevant_documents);
}

double reciprocal_rank(const QueryHits& query, std::size_t cut) {
  for (std::size_t rank = 0; rank < std::min(cut, query.is_relevant.size()); ++rank)
    if (query.is_relevant[rank]) return 1.0 / static_cast<double>(rank + 1);
  return 0;
}

double ndcg(const QueryHits& query, std::size_t cut) {
  double gain = 0, ideal = 0;
  for (std::size_t rank = 0; rank < cut; ++rank) {
    const double value = 1 / std::log2(static_cast<double>(rank + 2));
    if (rank < query.is_relevant.size() && query.is_relevant[rank]) gain += value;
    if (rank < query.relevant_documents) ideal += value;
  }
  return gain / ideal;
}

double mean_precision(const QueryHits& query, std::size_t cut) {
  double sum = 0;
  std::size_t correct = 0;
  for (std::size_t rank = 0; rank < std::min(cut, query.is_relevant.size()); ++rank)
    if (query.is_relevant[rank])
      sum += static_cast<double>(++correct) / static_cast<double>(rank + 1);
  return sum / static_cast<double>(std::min(cut, query.relevant_documents));
}

using Score = double (*)(const QueryHits&, std::size_t cut);

std::vector<double> values(std::span<const QueryHits> queries, Score score, std::size_t cut) {
  std::vector<double> values;
  for (const QueryHits& query : queries) values.push_back(score(query, cut));
  return values;
}

std::vector<double> means(std::span<const QueryHits> queries, Score score,
                          std::span<const std::size_t> cuts) {
  std::vector<double> result;
  for (const std::size_t cut : cuts) result.push_back(numpy_mean(values(queries, score, cut)));
  return result;
}

// The package sums these two query by query.
std::vector<double> plain_means(std::span<const QueryHits> queries, Score score,
                                std::span<const std::size_t> cuts) {
  std::vector<double> result;
  for (const std::size_t cut : cuts) {
    double sum = 0;
    for (const QueryHits& query : queries) sum += score(query, cut);
    result.push_back(sum / static_cast<double>(queries.size()));
  }
  return result;
}

}  // namespace

std::size_t RetrievalCuts::largest() const {
  std::size_t most = 0;
  for (const auto* cuts : {&accuracy, &precision_recall, &mrr, &ndcg, &map})
    for (const std::size_t cut : *cuts) most = std::max(most, cut);
  return most;
}

RetrievalScores retrieval_scores(const RetrievalCuts& cuts, std::span<const QueryHits> queries) {
  return {.accuracy = plain_means(queries, accuracy, cuts.accuracy),
          .precision = means(queries, precision, cuts.precision_recall),
          .recall = means(queries, recall, cuts.precision_recall),
          .mrr = plain_means(queries, reciprocal_rank, cuts.mrr),
          .ndcg = means(queries, ndcg, cuts.ndcg),
          .map = means(queries, mean_precision, cuts.map)};
}

}  // namespace tandem::tasks::ranking
