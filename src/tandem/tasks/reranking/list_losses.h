// The losses of one query's documents in f64: each returns its value and overwrites `slopes`, like
// scores, with the derivatives.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tandem::tasks::reranking {

double sigmoid(double x);

using Scores = std::span<const double>;
using Slopes = std::span<double>;

// Cross entropy between softmax(labels) and softmax(scores) (Cao et al. 2007, ListNet).
double list_net(Scores scores, Scores labels, Slopes slopes);

enum class ListOrder { kGiven, kByLabel };
enum class RankWeights { kEqual, kPositionAware };

// -log of the likelihood of the order (Xia et al. 2008, ListMLE). kPositionAware (Lan et al. 2014):
// place p of n weighs 2^(n - p) - 1, divided by the sum of the weights. Stable for scores of any
// size: sentence-transformers overflows near 88 and adds 1e-10 to each sum of exponentials, which
// changes its loss for scores below about -15.
double list_mle(Scores scores, Scores labels, ListOrder order, RankWeights weights, Slopes slopes);

// Squared differences of true and smooth ranks, discounted by the true rank; summed.
double rank_mse(Scores scores, Scores labels, double alpha, Slopes slopes);

// The weight of a pair of places in LambdaLoss (Wang et al. 2018).
enum class PairWeights { kNone, kNdcg1, kNdcg2, kLambdaRank, kNdcg2PlusPlus };

struct PairSums {
  double loss = 0;  // sum of -log2(sigmoid(score_i - score_j)^weight)
  // With label_i > label_j among the first k by score; for kNdcg1 all i and j, as in
  // sentence-transformers.
  std::size_t pairs = 0;
};

// `slopes` are those of the sum, for the caller to divide by the pairs of all queries. A NaN score
// gives NaN; sentence-transformers takes its differences as 0.
PairSums lambda_pairs(Scores scores, Scores labels, PairWeights weights, std::size_t k,
                      Slopes slopes);

}  // namespace tandem::tasks::reranking
