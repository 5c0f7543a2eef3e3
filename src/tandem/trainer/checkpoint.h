// checkpoint-N directories: everything that a bit-identical continuation needs, written all or
// nothing.
//
// A checkpoint is written into `tmp-checkpoint-N` next to its final path, synced file by file, then
// renamed. A process that is killed, or a disk that fills up, leaves the older checkpoints and at
// most a tmp- directory, which is not taken for a checkpoint and which the next run removes.
//
//   model.safetensors or pytorch_model.bin, config.json, tokenizer files: as in output_dir; the two
//                              files of the adapter where a base is frozen
//   optimizer.pt, scheduler.pt as Hugging Face's Trainer, which resumes from them
//                              (python_checkpoint.h)
//   trainer_state.json         as Hugging Face
//   training_args.json         the arguments of the run that wrote it
//   tandem_state.json          what only tandem needs: shards, loss sums since the last log
//   manifest.json              checksums of all of them (checkpoint_manifest.h)
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/nn/parameter_layout.h"
#include "tandem/optim/optimizer.h"
#include "tandem/optim/schedule.h"
#include "tandem/tasks/task.h"
#include "tandem/trainer/resume_state.h"
#include "tandem/trainer/trainer_state.h"

namespace tandem::trainer {

// The trained values in f32: weights of the layout's size, and the optimizer's state.
struct TrainedArenas {
  std::span<float> weights;
  std::span<float> optimizer_state;
  std::vector<optim::StateTensor> state_tensors;  // what lies where in optimizer_state
};

// Where an optimizer and its schedule stand after a step: what Python's objects know in addition to
// tensors.
struct OptimizationState {
  optim::OptimizerOptions optimizer = {};
  std::int64_t step = 0;                                             // updates done
  double peak_learning_rate = 0;                                     // --learning_rate
  double next_learning_rate = 0;                                     // rate of the update to come
  std::optional<optim::MetricSchedule::State> metric_schedule = {};  // as ResumeState's
};

// "checkpoint-500" -> 500.
std::optional<std::int64_t> checkpoint_step(const std::filesystem::path& directory);
// The complete checkpoints in `output_dir`, newest first; that with the largest step, if any.
std::vector<std::filesystem::path> complete_checkpoints(const std::filesystem::path& output_dir);
std::optional<std::filesystem::path> last_checkpoint(const std::filesystem::path& output_dir);
// Renames a checkpoint that is of no use ("damaged", "stale") to <why>-checkpoint-N next to it,
// where neither a resume nor the rotation takes it for one. Returns the new name. Throws IoError.
std::filesystem::path set_checkpoint_aside(const std::filesystem::path& checkpoint,
                                           std::string_view why);
// Gives a checkpoint its name back that a killed run was about to replace with one of the same step
// (only where the file system cannot exchange two names). Call before last_checkpoint().
void restore_replaced_checkpoints(const std::filesystem::path& output_dir);
// Removes what killed runs left: tmp-checkpoint-* in `output_dir`.
void remove_unfinished_checkpoints(const std::filesystem::path& output_dir);
struct SetAside {
  std::optional<std::filesystem::path> kept;   // stale-checkpoint-N
  std::vector<std::filesystem::path> removed;  // older ones, under their names until now
};
// Renames the newest checkpoint in `output_dir` that is not of the run that begins, checkpoint-N to
// stale-checkpoint-N, so that neither rotation nor a resume takes it for what this run wrote last.
// The other checkpoints of earlier runs are removed, and so is what was set aside before. The
// checkpoints of this run are `resumed` (where it resumes from) and those of earlier steps next to
// it.
SetAside set_stale_checkpoints_aside(const std::filesystem::path& output_dir,
                                     const std::optional<std::filesystem::path>& resumed);
// Bytes of one checkpoint, up to a few kilobytes of JSON.
std::size_t checkpoint_bytes(const nn::ParameterLayout& layout, std::size_t optimizer_elements);

struct CheckpointContents {
  const tasks::Task& task;
  TrainedArenas arenas;
  const TrainerState& state;
  const ResumeState& resume;
  std::string training_arguments_json;
  std::optional<OptimizationState> optimization;  // absent with --save_only_model
};

// Writes output_dir/checkpoint-<state.global_step> and returns its path. Throws IoError (disk full,
// not writable) with the old state untouched.
std::filesystem::path save_checkpoint(const std::filesystem::path& output_dir,
                                      const CheckpointContents& contents);

struct LoadedCheckpoint {
  TrainerState state;
  ResumeState resume;
};

// Reads state and checks that the directory is a complete checkpoint, tandem's or the Hugging Face
// Trainer's. Throws IoError or DataError.
LoadedCheckpoint load_checkpoint_state(const std::filesystem::path& directory);
// Fills the arenas from the weights and optimizer.pt, or the optimizer.safetensors of checkpoints
// that tandem wrote before. Throws IoError or DataError (a tensor that is absent or of another
// shape).
void load_checkpoint_arenas(const std::filesystem::path& directory,
                            const nn::ParameterLayout& layout, const TrainedArenas& arenas);

// Deletes the oldest checkpoints beyond `limit` (at least 1); never `best`, and never the newest.
// Returns what it removed.
std::vector<std::filesystem::path> rotate_checkpoints(const std::filesystem::path& output_dir,
                                                      int limit,
                                                      const std::optional<std::string>& best);

}  // namespace tandem::trainer
