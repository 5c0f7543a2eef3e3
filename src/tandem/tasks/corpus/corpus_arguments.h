// The flags that run_mlm and run_clm have in common, with Hugging Face's names and defaults.
#pragma once

#include <cstdint>
#include <optional>

#include "tandem/flags/flag.h"
#include "tandem/tasks/data_source.h"

namespace tandem::corpus {

struct CorpusArguments : tasks::DataSource {
  int validation_split_percentage = 5;  // share of the training rows, without a validation part
  std::optional<std::int64_t> max_train_samples, max_eval_samples;
  bool overwrite_cache = false;
  std::optional<int> preprocessing_num_workers;
  bool streaming = false;  // corpora are always read through a fixed memory
};

// The model to begin with, or the family of a new one.
flags::FlagTable model_flags();
// The files and their split.
flags::FlagTable data_flags();
// How many samples, for a table of the task's own.
flags::FlagTable sample_flags();

}  // namespace tandem::corpus
