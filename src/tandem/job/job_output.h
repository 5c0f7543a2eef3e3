// The output_dir of a job: what is in it before, what a checkpoint there fixes, what results go
// into it.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "tandem/comm/api/communicator.h"
#include "tandem/core/json.h"
#include "tandem/core/lock_file.h"
#include "tandem/job/console.h"
#include "tandem/job/output_place.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

struct PreparedOutput {
  std::optional<std::filesystem::path> resume;  // the checkpoint to go on from
  // Of rank 0, for as long as the job runs: another job in the same output_dir ends at its start.
  std::optional<LockFile> lock;
};

// Makes output_dir, locks it, removes what killed runs left half-written there, and finds the
// checkpoint to resume from: the flag's, else the newest that a previous run left there. Rank 0
// looks at the file system, the others are told: they may see it a moment later, or not at all.
// `place`: of an earlier start of this job what lies there is its own, so a directory without a
// checkpoint will do, too, and --overwrite_output_dir goes on from a checkpoint of its own.
// Collective.
// The lock of an earlier start of this job is waited for; that of another job is an error.
// Throws ConfigError (the directory is not empty, another job has it), IoError.
PreparedOutput prepare_output(const trainer::TrainingArguments& training, const OutputPlace& place,
                              comm::Communicator& communicator, Console& console);

// Takes the lock of output_dir where nobody has it, for whoever writes there from now on: in an
// elastic job the first to do so may have died. Nothing where another process has it. Throws
// VolumeGone.
void keep_locked(const std::filesystem::path& output_dir, std::optional<LockFile>& lock);

// --split_batches: the batch sizes are those of all shards together. Throws ConfigError.
void split_batch_sizes(int shards, trainer::TrainingArguments& training);

// What a checkpoint fixes, because the order of data and sums depends on it: logical shards, unless
// --logical_shards says otherwise, and (as in Hugging Face) the batch size. Throws ConfigError.
void adopt_checkpoint_settings(const std::filesystem::path& checkpoint, int world_size,
                               trainer::TrainingArguments& training, Console& console);

// <split>_results.json, and all_results.json, which collects what every stage wrote.
void save_metrics(const std::filesystem::path& output_dir, std::string_view split,
                  const nlohmann::ordered_json& metrics);

}  // namespace tandem::job
