// The evaluators of sentence-transformers over embeddings or scores that the caller computed. Keys,
// their order and the files are those of version 5.7.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/tasks/ranking/csv_table.h"
#include "tandem/tasks/ranking/retrieval.h"
#include "tandem/tasks/ranking/similarity_functions.h"

namespace tandem::tasks::ranking {

struct EvaluatorResult {
  // Without the name of the data set, in the package's order: "spearman_cosine".
  std::vector<std::pair<std::string, double>> metrics;
  std::string primary;  // the key that is compared between checkpoints
  CsvTable table;
};

// Puts `name` and "_" in front of each key, unless the name is empty.
void add_name(EvaluatorResult& result, const std::string& name);

// `functions`: at least one. `name` of the data set is part of the file's name.
using Functions = std::span<const Similarity>;

EvaluatorResult embedding_similarity(const Embeddings& a, const Embeddings& b,
                                     std::span<const double> labels, Functions functions,
                                     const std::string& name);

// labels: 0 or 1.
EvaluatorResult binary_classification(const Embeddings& a, const Embeddings& b,
                                      std::span<const int> labels, Functions functions,
                                      const std::string& name);

EvaluatorResult triplet(const Embeddings& anchors, const Embeddings& positives,
                        const Embeddings& negatives, Functions functions, const std::string& name);

// The hits of all queries under one similarity function.
struct SearchResult {
  Similarity function = Similarity::kCosine;
  std::vector<QueryHits> queries;
};

// The primary metric is that of the function with the highest nDCG at its largest cut.
EvaluatorResult information_retrieval(std::span<const SearchResult> searches,
                                      const RetrievalCuts& cuts, const std::string& name);

// A query with the documents to order: relevance and score of each.
struct RankedQuery {
  std::vector<int> relevant;
  std::vector<float> scores;
};

// Bi-encoders. Queries that have no relevant or no other document are left out.
EvaluatorResult reranking(std::span<const RankedQuery> queries, std::size_t at_k,
                          const std::string& name);

// Cross-encoders. A query without a relevant document counts as 0. base: the order before, where
// the data has it; empty otherwise.
EvaluatorResult cross_encoder_reranking(std::span<const RankedQuery> queries,
                                        std::span<const RankedQuery> base, std::size_t at_k,
                                        const std::string& name);

EvaluatorResult cross_encoder_correlation(std::span<const float> scores,
                                          std::span<const double> labels, const std::string& name);

// For one output: scores and labels that are 0 or 1.
EvaluatorResult cross_encoder_binary(std::span<const float> scores, std::span<const int> labels,
                                     const std::string& name);

// For several outputs: the class with the highest score.
EvaluatorResult cross_encoder_classes(std::span<const int> predictions, std::span<const int> labels,
                                      const std::string& name);

}  // namespace tandem::tasks::ranking
