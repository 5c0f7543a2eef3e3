// From files of rows to the samples of supervised fine-tuning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/tasks/causal_language/causal_samples.h"
#include "tandem/tasks/supervised/row_encoder.h"
#include "tandem/text/tokenizer.h"

namespace tandem::supervised {

enum class Packing {
  kNone,      // a row is a sample, cut to max_length
  kBestFit,   // rows, cut to max_length, share samples
  kSplitFit,  // rows share samples; longer ones are several sequences
};

struct SampleOptions {
  std::string text_field = "text";
  std::optional<std::string> eos_token = std::nullopt;
  std::optional<bool> completion_only = std::nullopt;  // unset: for prompts with completions
  std::size_t max_length = 1024;
  bool keep_end = false;  // of rows that are cut
  Packing packing = Packing::kNone;
  std::optional<std::int64_t> max_rows = std::nullopt;
};

struct SampleCounts {
  std::uint64_t rows = 0;
  std::uint64_t unlabelled_rows = 0;  // left out: nothing of them is a label behind the cut
  std::uint64_t cut_rows = 0, cut_tokens = 0;
  std::uint64_t changed_prompts = 0;  // rows whose prompt has other tokens in front of a completion
};

struct Samples {
  causal_language::CausalSamples samples;
  std::vector<std::string> columns;  // that were read
  bool conversations = false;
  SampleCounts counts;
};

// Rows with `prompt` and `completion`, `messages`, `conversations`, or the text field, in this
// order, as TRL chooses them. With packing, 1,000 rows share samples. The samples are the same for
// any number of threads. Throws DataError that names file and row, and ConfigError.
Samples read_samples(std::span<const std::filesystem::path> files, const SampleOptions& options,
                     const text::Tokenizer& tokenizer, ThreadPool& threads);

}  // namespace tandem::supervised
