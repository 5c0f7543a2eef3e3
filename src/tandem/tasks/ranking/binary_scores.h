// A threshold over scores of pairs that are equal or not, as sentence-transformers'
// BinaryClassificationEvaluator searches it.
#pragma once

#include <span>

namespace tandem::tasks::ranking {

struct BinaryScores {
  double accuracy = 0;
  float accuracy_threshold = -1;
  double f1 = 0;
  float f1_threshold = 0;
  double precision = 0;
  double recall = 0;
  double average_precision = 0;
  double mcc = 0;  // at f1_threshold
};

// labels: 0 or 1. A threshold is the middle of two neighbours in the order of the scores. With
// `less_is_more` the scores are distances. Equal scores keep the order of the data.
BinaryScores binary_scores(std::span<const int> labels, std::span<const float> scores,
                           bool less_is_more);

}  // namespace tandem::tasks::ranking
