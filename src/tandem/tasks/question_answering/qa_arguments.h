// Data for training and evaluating question answering: the "data" group of run_qa.py's arguments
// (DataTrainingArguments), with Hugging Face's names and defaults. A plain struct; apps/arguments
// fills it from the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/tasks/data_source.h"

namespace tandem::tasks {

struct QaArguments : DataSource {
  // --- making features ---
  bool overwrite_cache = false;  // make features anew even if an earlier run kept them
  // Threads that make features; none: all of this rank's.
  std::optional<int> preprocessing_num_workers;

  // --- features ---
  int max_seq_length = 384;  // tokens of question, context window and specials together
  // Tokens that two windows of a long context share (the overlap, not the hop).
  int doc_stride = 128;
  // Unset: no padding is computed; softmax and loss run over real tokens.
  // true: Hugging Face's numbers, every feature padded to max_seq_length.
  // false: Hugging Face's numbers, padded to the longest feature of the batch.
  std::optional<bool> pad_to_max_length;
  // The first n examples, then the first n features.
  std::optional<std::int64_t> max_train_samples;
  std::optional<std::int64_t> max_eval_samples;
  std::optional<std::int64_t> max_predict_samples;
  // tandem's own. false: when an answer starts in the last context token of a window its start
  // label is (feature length - 1), as in Hugging Face; true: the right token.
  bool fix_last_token_labels = false;
  // tandem's own. Training examples of which no feature can be made (a question that fills
  // max_seq_length, a context without a token) are left out and counted instead of ending the job.
  bool skip_unusable_examples = false;

  // --- answers ---
  bool version_2_with_negative = false;  // SQuAD v2: some questions have no answer
  double null_score_diff_threshold =
      0.0;                     // v2: "no answer" wins when it scores better by more than this
  int n_best_size = 20;        // start and end candidates per feature, answers kept per question
  int max_answer_length = 30;  // tokens
};

}  // namespace tandem::tasks
