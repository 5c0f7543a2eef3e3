// The output_dir of a job: what is in it before, what a checkpoint there fixes, what results go into it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "apps/console.h"
#include "tandem/comm/communicator.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::apps {

// Makes output_dir and returns the checkpoint to resume from: the flag's, else the newest that a
// previous run left there. Rank 0 looks at the file system, the others are told: they may see it a
// moment later, or not at all. Collective. Throws ConfigError (the directory is not empty), IoError.
std::optional<std::filesystem::path> prepare_output(const trainer::TrainingArguments& training,
                                                    comm::Communicator& communicator,
                                                    Console& console);

// --split_batches: the batch sizes are those of all shards together. Throws ConfigError.
void split_batch_sizes(int shards, trainer::TrainingArguments& training);

// What a checkpoint fixes, because the order of data and sums depends on it: logical shards, unless
// --logical_shards says otherwise, and (as in Hugging Face) the batch size. Throws ConfigError.
void adopt_checkpoint_settings(const std::filesystem::path& checkpoint, int world_size,
                               trainer::TrainingArguments& training, Console& console);

// <split>_results.json, and all_results.json, which collects what every stage wrote.
void save_metrics(const std::filesystem::path& output_dir, std::string_view split,
                  const nlohmann::ordered_json& metrics);

}  // namespace tandem::apps
