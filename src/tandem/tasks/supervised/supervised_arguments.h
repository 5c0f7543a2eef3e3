// The flags of `tandem run_sft` that other tasks do not have, with the names and defaults of TRL 1
// (SFTConfig, ScriptArguments). A plain struct; apps/arguments fills it from the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/core/enum_name.h"
#include "tandem/tasks/data_source.h"

namespace tandem::supervised {

// The end of a row that is kept where it is too long.
enum class TruncationMode { kKeepStart, kKeepEnd };
inline constexpr std::string_view kTruncationModeNames[] = {"keep_start", "keep_end"};
inline EnumNames enum_names(TruncationMode) { return kTruncationModeNames; }

// Best-fit decreasing; rows that are too long are cut, or become several sequences.
enum class PackingStrategy { kBestFit, kSplitFit };
inline constexpr std::string_view kPackingStrategyNames[] = {"bfd", "bfd_split"};
inline EnumNames enum_names(PackingStrategy) { return kPackingStrategyNames; }

struct SupervisedArguments : tasks::DataSource {
  std::string dataset_text_field = "text";  // column of plain texts
  std::optional<std::string> eos_token;     // behind texts; unset: the tokenizer's
  std::optional<int> max_length;            // unset: 1,024, at most the model's positions
  TruncationMode truncation_mode = TruncationMode::kKeepStart;
  std::optional<bool> completion_only_loss;  // unset: for rows with a prompt and a completion
  bool packing = false;
  PackingStrategy packing_strategy = PackingStrategy::kBestFit;
  std::optional<bool> eval_packing;  // unset: packing
  std::optional<std::int64_t> max_train_samples, max_eval_samples;
  std::optional<int> dataset_num_proc;  // threads
};

}  // namespace tandem::supervised
