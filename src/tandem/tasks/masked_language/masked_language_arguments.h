// The flags of `tandem run_mlm` that other tasks do not have: the "data" group of run_mlm.py's
// arguments (DataTrainingArguments), with Hugging Face's names and defaults. A plain struct;
// apps/arguments fills it from the command line.
#pragma once

#include <optional>

#include "tandem/tasks/corpus/corpus_arguments.h"

namespace tandem::masked_language {

struct MaskedLanguageArguments : corpus::CorpusArguments {
  // --- pieces ---
  std::optional<int> max_seq_length;      // unset: the tokenizer's, at most 1,024
  bool line_by_line = false;              // each row is a piece; else rows are joined
  std::optional<bool> pad_to_max_length;  // as in every task; unset: no padding is computed

  // --- masks ---
  double mlm_probability = 0.15;
  bool whole_word_mask = false;
  bool torch_masks = false;  // those of the official script
};

}  // namespace tandem::masked_language
