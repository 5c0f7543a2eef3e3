// Data for training and evaluating the tagging of words: the "data" group of run_ner.py's arguments
// (DataTrainingArguments), with Hugging Face's names and defaults. A plain struct; apps/arguments
// fills it from the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/tasks/data_source.h"

namespace tandem::tasks {

struct NerArguments : DataSource {
  // --- the columns ---
  std::string task_name = "ner";  // ner, pos, chunk: the tags are in "<task_name>_tags"
  std::optional<std::string> text_column_name;   // column of the words
  std::optional<std::string> label_column_name;  // column of the tags
  bool overwrite_cache = false;  // make features anew even if an earlier run kept them
  // Threads that make features; none: all of this rank's.
  std::optional<int> preprocessing_num_workers;

  // --- features ---
  std::optional<int> max_seq_length;  // none: the tokenizer's model_max_length
  // Unset: no padding is computed. true: every sentence is padded to max_seq_length. false: to the
  // longest of its batch. The numbers are the same but for rounding.
  std::optional<bool> pad_to_max_length;
  bool label_all_tokens = false;  // also the further tokens of a word
  // The first n rows.
  std::optional<std::int64_t> max_train_samples;
  std::optional<std::int64_t> max_eval_samples;
  std::optional<std::int64_t> max_predict_samples;

  // --- training and scores ---
  double label_smoothing_factor = 0;         // smoothing of the loss
  bool return_entity_level_metrics = false;  // scores of every type of entity, not only overall
};

}  // namespace tandem::tasks
