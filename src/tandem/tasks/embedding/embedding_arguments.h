/** The flags of `tandem run_embedding` that other tasks do not have. A plain struct; apps/arguments fills it from the command
 * line. Names and defaults are those of sentence-transformers where it has the argument. */
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/tasks/data_source.h"

namespace tandem::tasks::embedding {

struct EmbeddingArguments : DataSource {
  // --- columns ---
  std::optional<std::string> train_columns;  // commas between; unset: the order of the file
  std::optional<std::string> label_column;
  std::optional<std::int64_t> max_train_samples, max_eval_samples, max_predict_samples;
  std::optional<int> preprocessing_num_workers;
  bool overwrite_cache = false;

  // --- model, where its directory has no modules.json ---
  std::optional<std::string> pooling_mode;
  bool normalize = false;
  std::optional<int> max_seq_length;

  // --- loss ---
  std::optional<std::string> loss;
  double scale = 20;
  std::optional<std::int64_t> mini_batch_size;
  bool gather_across_devices = false;
};

}  // namespace tandem::tasks::embedding
