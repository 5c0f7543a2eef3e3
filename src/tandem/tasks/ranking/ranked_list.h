// Scores of one ranked list, as scikit-learn and sentence-transformers compute them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem::tasks::ranking {

// 1 for a relevant document, 0 for another.
using Relevance = std::vector<int>;

// Average precision: the precision at each distinct score, weighted by the growth of recall there.
// 0 without a relevant document.
double average_precision(std::span<const int> relevant, std::span<const float> scores);

// Normalized discounted cumulative gain of the first k; equal scores share the mean of their gains.
double ndcg_at(std::size_t k, std::span<const int> relevant, std::span<const float> scores);

enum class Ties { kEarlierFirst, kLaterFirst };

// 1 / rank of the first relevant document among the first k; 0 without one.
double reciprocal_rank_at(std::size_t k, std::span<const int> relevant,
                          std::span<const float> scores, Ties ties);

}  // namespace tandem::tasks::ranking
