// Exact match and F1 of SQuAD v1 and v2, as the `evaluate` modules squad and squad_v2 compute them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/data/question_example.h"

namespace tandem::question_answering {

// (name, value) in the order in which the Python modules list them. Values are percentages, except
// *total and *_thresh.
using Metrics = std::vector<std::pair<std::string, double>>;

// Lower case, without ASCII punctuation and the articles a, an, the, white space collapsed to
// single spaces.
std::string normalize_answer(std::string_view answer);

// Throws DataError, with the hint to use --version_2_with_negative, if an example has no gold
// answer: squad_metrics() cannot score it.
void check_answered(std::span<const data::QuestionExample> examples);

// exact_match, f1. predictions[i] answers examples[i]. Throws DataError as check_answered(),
// InvalidArgument if the sizes differ or are 0.
Metrics squad_metrics(std::span<const data::QuestionExample> examples,
                      std::span<const std::string_view> predictions);

// exact, f1, total, HasAns_* and NoAns_* where there are such questions, best_exact,
// best_exact_thresh, best_f1, best_f1_thresh, for no_answer_probability 0 of every question, which
// is what run_qa.py passes.
Metrics squad_v2_metrics(std::span<const data::QuestionExample> examples,
                         std::span<const std::string_view> predictions);

// Scores of one prediction against its gold answers, in [0, 1].
struct Score {
  double exact = 0;
  double f1 = 0;
};
Score squad_score(std::string_view prediction, std::span<const std::string_view> golds);
Score squad_v2_score(std::string_view prediction, std::span<const std::string_view> golds);

}  // namespace tandem::question_answering
