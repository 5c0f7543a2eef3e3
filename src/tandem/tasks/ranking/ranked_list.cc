#include "tandem/tasks/ranking/ranked_list.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem::tasks::ranking {
namespace {

// Documents by score, the best first.
std::vector<std::size_t> best_first(std::span<const float> scores, Ties ties) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (ties == Ties::kLaterFirst) std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  return order;
}

// Calls visit(begin, end, relevant documents) for each run of equal scores in the order.
template <class Visit>
void each_tie(std::span<const std::size_t> order, std::span<const int> relevant,
              std::span<const float> scores, Visit&& visit) {
  for (std::size_t begin = 0, end; begin < order.size(); begin = end) {
    int found = 0;
    for (end = begin; end < order.size() && scores[order[end]] == scores[order[begin]]; ++end)
      found += relevant[order[end]];
    visit(begin, end, found);
  }
}

double discount(std::size_t rank) { return 1 / std::log2(static_cast<double>(rank) + 2); }

}  // namespace

double average_precision(std::span<const int> relevant, std::span<const float> scores) {
  const int all = std::accumulate(relevant.begin(), relevant.end(), 0);
  if (all == 0) return 0;
  const std::vector<std::size_t> order = best_first(scores, Ties::kEarlierFirst);
  double sum = 0;
  int seen = 0;
  each_tie(order, relevant, scores, [&](std::size_t, std::size_t end, int found) {
    seen += found;
    const double precision = static_cast<double>(seen) / static_cast<double>(end);
    sum += static_cast<double>(found) / all * precision;
  });
  return sum;
}

double ndcg_at(std::size_t k, std::span<const int> relevant, std::span<const float> scores) {
  const std::vector<std::size_t> order = best_first(scores, Ties::kEarlierFirst);
  double gain = 0;
  each_tie(order, relevant, scores, [&](std::size_t begin, std::size_t end, int found) {
    double discounts = 0;
    for (std::size_t rank = begin; rank < std::min(end, k); ++rank) discounts += discount(rank);
    gain += discounts * found / static_cast<double>(end - begin);
  });
  const auto all = static_cast<std::size_t>(std::accumulate(relevant.begin(), relevant.end(), 0));
  double ideal = 0;
  for (std::size_t rank = 0; rank < std::min(all, k); ++rank) ideal += discount(rank);
  return ideal > 0 ? gain / ideal : 0;
}

double reciprocal_rank_at(std::size_t k, std::span<const int> relevant,
                          std::span<const float> scores, Ties ties) {
  const std::vector<std::size_t> order = best_first(scores, ties);
  for (std::size_t rank = 0; rank < std::min(k, order.size()); ++rank)
    if (relevant[order[rank]] != 0) return 1 / static_cast<double>(rank + 1);
  return 0;
}

}  // namespace tandem::tasks::ranking
