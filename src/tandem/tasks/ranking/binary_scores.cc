#include "tandem/tasks/ranking/binary_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tandem/tasks/ranking/ranked_list.h"

namespace tandem::tasks::ranking {
namespace {

struct Row {
  float score = 0;
  int label = 0;
};

// The most similar pairs first.
std::vector<Row> sorted_rows(std::span<const int> labels, std::span<const float> scores,
                             bool less_is_more) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < labels.size(); ++i) rows.push_back({scores[i], labels[i]});
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    return less_is_more ? a.score < b.score : a.score > b.score;
  });
  return rows;
}

float threshold_after(std::span<const Row> rows, std::size_t i) {
  return (rows[i].score + rows[i + 1].score) / 2;
}

void find_accuracy(std::span<const Row> rows, BinaryScores& result) {
  double positives = 0;
  auto negatives = static_cast<double>(
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.label == 0; }));
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    (rows[i].label == 1 ? positives : negatives) += rows[i].label == 1 ? 1 : -1;
    const double accuracy = (positives + negatives) / static_cast<double>(rows.size());
    if (accuracy <= result.accuracy) continue;
    result.accuracy = accuracy;
    result.accuracy_threshold = threshold_after(rows, i);
  }
}

void find_f1(std::span<const Row> rows, BinaryScores& result) {
  const auto all = static_cast<double>(
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.label == 1; }));
  double correct = 0;
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    correct += rows[i].label == 1 ? 1 : 0;
    if (correct == 0) continue;
    const double precision = correct / static_cast<double>(i + 1), recall = correct / all;
    const double f1 = 2 * precision * recall / (precision + recall);
    if (f1 <= result.f1) continue;
    result.f1 = f1;
    result.precision = precision;
    result.recall = recall;
    result.f1_threshold = threshold_after(rows, i);
  }
}

// Matthews' correlation; 0 when a side has one class only.
double matthews(std::span<const Row> rows, float threshold, bool less_is_more) {
  double true_positive = 0, true_negative = 0, false_positive = 0, false_negative = 0;
  for (const Row& row : rows) {
    const bool predicted = less_is_more ? row.score <= threshold : row.score >= threshold;
    if (row.label == 1) {
      (predicted ? true_positive : false_negative) += 1;
    } else {
      (predicted ? false_positive : true_negative) += 1;
    }
  }
  const double divisor =
      std::sqrt((true_positive + false_positive) * (true_positive + false_negative) *
                (true_negative + false_positive) * (true_negative + false_negative));
  if (divisor == 0) return 0;
  return (true_positive * true_negative - false_positive * false_negative) / divisor;
}

}  // namespace

BinaryScores binary_scores(std::span<const int> labels, std::span<const float> scores,
                           bool less_is_more) {
  BinaryScores result;
  const std::vector<Row> rows = sorted_rows(labels, scores, less_is_more);
  find_accuracy(rows, result);
  find_f1(rows, result);
  std::vector<float> similarities(scores.begin(), scores.end());
  if (less_is_more)
    for (float& score : similarities) score = -score;
  result.average_precision = average_precision(labels, similarities);
  result.mcc = matthews(rows, result.f1_threshold, less_is_more);
  return result;
}

}  // namespace tandem::tasks::ranking
