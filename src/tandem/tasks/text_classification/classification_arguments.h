// Data for training and evaluating text classification: the "data" group of run_glue.py's and
// run_classification.py's arguments, with Hugging Face's names and defaults. A plain struct; the
// command line fills it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/tasks/data_source.h"

namespace tandem::text_classification {

// The script whose rules hold for columns, labels and files.
enum class Script { kGlue, kClassification };

struct ClassificationArguments : tasks::DataSource {
  Script script = Script::kGlue;
  bool overwrite_cache = false;  // make features anew even if an earlier run kept them
  std::optional<int> preprocessing_num_workers;  // threads that make features

  // --- features and examples ---
  int max_seq_length = 128;  // tokens with the special ones
  // Unset: no padding is computed; true: to max_seq_length; false: to the longest of the batch. The
  // results are the same but for rounding.
  std::optional<bool> pad_to_max_length;
  std::optional<std::int64_t> max_train_samples;  // the first n
  std::optional<std::int64_t> max_eval_samples;
  std::optional<std::int64_t> max_predict_samples;

  // --- run_glue ---
  std::optional<std::string> task_name;

  // --- run_classification ---
  std::optional<std::string> text_column_names;  // comma list; unset: "sentence"
  std::string text_column_delimiter = " ";       // between the texts of several columns
  std::optional<std::string> label_column_name;  // unset: "label"
  std::optional<bool> do_regression;             // unset: when the labels are not whole numbers
  std::optional<std::string> remove_columns;     // comma list; none of them with texts or labels
  bool shuffle_train_dataset = false;
  std::int64_t shuffle_seed = 42;
  std::optional<std::string> metric_name;  // accuracy, f1 or mse; unset: by the kind of labels

  // --- training ---
  double label_smoothing_factor = 0;

  // The column with labels.
  std::string label_column() const {
    return script == Script::kGlue ? "label" : label_column_name.value_or("label");
  }
};

}  // namespace tandem::text_classification
