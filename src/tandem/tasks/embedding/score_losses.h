// Losses of one number or a few per row: a similarity or distance of column 0 with each of the
// other columns.
#pragma once

#include <memory>
#include <span>

#include "tandem/tasks/embedding/loss.h"
#include "tandem/tasks/ranking/pair_functions.h"

namespace tandem::tasks::embedding {

// The numbers of all rows of a group.
struct RowScores {
  std::size_t rows = 0;
  std::span<const double> values;  // [rows, columns - 1]
  std::span<const float> labels;   // [rows, labels per row]
};

// Returns the loss and overwrites `slopes`, like values, with its derivatives.
using ScoreLoss = double (*)(const RowScores& scores, double parameter, std::span<double> slopes);

// mean (score - label)².
double squared_error(const RowScores& scores, double, std::span<double> slopes);
// log(1 + Σ exp(scale (score_i - score_j))) over label_i < label_j (Su 2022, CoSENT).
double cosent(const RowScores& scores, double scale, std::span<double> slopes);
// mean ½ (label d² + (1 - label) max(margin - d, 0)²) (Hadsell et al. 2006).
double contrastive(const RowScores& distances, double margin, std::span<double> slopes);
// The sum over hard pairs alone: positives farther than the nearest negative, negatives nearer than
// the farthest positive. Pairs whose label is neither 0 nor 1 are left out.
double online_contrastive(const RowScores& distances, double margin, std::span<double> slopes);
// mean max(d_positive - d_negative + margin, 0).
double triplet(const RowScores& distances, double margin, std::span<double> slopes);
// mean (score_positive - score_negative - margin)². Labels are a margin for each negative, or the
// scores of the positive and of each negative.
double margin_mse(const RowScores& scores, double, std::span<double> slopes);

// `loss` of `pair`'s numbers.
std::unique_ptr<EmbeddingLoss> make_score_loss(const ranking::PairFunction& pair, ScoreLoss loss,
                                               double parameter);

// Mean squared difference between the embedding of every column and the label, the embedding of a
// teacher. labels: [rows, width], one for all columns, or [rows, columns, width].
std::unique_ptr<EmbeddingLoss> make_teacher_loss();

}  // namespace tandem::tasks::embedding
