// The flags of `tandem run_clm` that other tasks do not have: the "data" group of run_clm.py's
// arguments (DataTrainingArguments), with Hugging Face's names and defaults. A plain struct;
// apps/arguments fills it from the command line.
#pragma once

#include <optional>

#include "tandem/tasks/corpus/corpus_arguments.h"

namespace tandem::causal_language {

struct CausalLanguageArguments : corpus::CorpusArguments {
  std::optional<int> block_size;  // unset: the tokenizer's limit, or at most 1,024
  bool keep_linebreaks = true;    // of .txt files
};

}  // namespace tandem::causal_language
