// The output_dir of a job: its previous contents, the settings that a checkpoint there fixes, and
// the results written to it.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "tandem/comm/communicator.h"
#include "tandem/core/lock_file.h"
#include "tandem/core/volume.h"
#include "tandem/job/console.h"
#include "tandem/job/output_directory.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

struct PreparedOutput {
  std::optional<OutputDirectory> directory;     // on ranks that chose one
  std::optional<std::filesystem::path> resume;  // the checkpoint to resume from
  // On rank 0, for the duration of the job: another job with the same output_dir fails at its
  // start.
  std::optional<LockFile> lock;
  std::optional<VolumeMark> volume;  // set once output_dir is known
};

// Creates output_dir, locks it, removes incomplete files of killed runs, and finds the checkpoint
// to resume from: the flag's, else the newest one of a previous run there. Rank 0 reads the file
// system and sends the result to the others, since these may see changes later, or not at all.
// `output.directory`: files of an earlier start of this job belong to it, so a directory without a
// checkpoint is accepted too, and --overwrite_output_dir resumes from a checkpoint of this job.
// Sets `output.resume` and `output.lock`. Collective. Waits for the lock of an earlier start of
// this job; the lock of another job is an error. Throws ConfigError (the directory is not empty,
// another job has it), IoError.
void prepare_output(const trainer::TrainingArguments& training, PreparedOutput& output,
                    comm::Communicator& communicator, Console& console);

// Takes the lock of output_dir if it is free, for the process that writes there from now on: in an
// elastic job the first such process may have died. No effect if another process has the lock.
// Throws VolumeGone.
void keep_locked(const std::filesystem::path& output_dir, std::optional<LockFile>& lock);

// --split_batches: the batch sizes are totals over all shards. Throws ConfigError.
void split_batch_sizes(int shards, trainer::TrainingArguments& training);

// Applies the settings that a checkpoint fixes, because the order of data and sums depends on them:
// logical shards, unless --logical_shards overrides them, and (as in Hugging Face) the batch size.
// Throws ConfigError.
void adopt_checkpoint_settings(const std::filesystem::path& checkpoint, int world_size,
                               trainer::TrainingArguments& training, Console& console);

// Writes <split>_results.json, and all_results.json, which collects the results of all stages.
void save_metrics(const std::filesystem::path& output_dir, std::string_view split,
                  const nlohmann::ordered_json& metrics);

}  // namespace tandem::job
