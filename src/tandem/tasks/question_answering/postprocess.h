// From logits to answers: utils_qa.py's postprocess_qa_predictions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/data/question_example.h"
#include "tandem/tasks/question_answering/features.h"

namespace tandem::question_answering {

struct PostprocessOptions {
  bool version_2_with_negative = false;
  std::size_t n_best_size = 20;
  std::size_t max_answer_length = 30;  // tokens
  double null_score_diff_threshold = 0.0;
};

// The logits of all features, packed: those of feature i are [row_begin[i], row_begin[i + 1]), at
// least its real tokens, more under padding.
struct Logits {
  std::span<const float> start;
  std::span<const float> end;
  std::span<const std::size_t> row_begin;  // [features + 1]
};

struct Candidate {
  std::string_view text;   // text of the example's context, or "empty", or ""
  double start_logit = 0;  // a float32 widened to double
  double end_logit = 0;
  double probability = 0;
  bool placeholder = false;  // the entry "empty" that stands for "nothing found"
};

struct Prediction {
  std::string_view id;  // id of the example
  std::string_view text;
  std::vector<Candidate> n_best;
  double null_odds = 0;  // v2: score of "no answer" minus that of the best answer
};

struct Predictions {
  // One per example, in their order; views belong to the examples.
  std::vector<Prediction> predictions;
  std::vector<std::string> warnings;
};

// Answers every example from the logits of its features; parallel over examples, the same for any
// number of threads. Equal logits rank by position, lowest first (numpy leaves it open). Throws
// InvalidArgument if sizes do not match or n_best_size or max_answer_length is 0.
Predictions postprocess(std::span<const data::QuestionExample> examples, const FeatureSet& features,
                        const Logits& logits, const PostprocessOptions& options,
                        ThreadPool& threads);

}  // namespace tandem::question_answering
