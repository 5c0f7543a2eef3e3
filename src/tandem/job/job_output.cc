#include "tandem/job/job_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "tandem/comm/texts.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/interruption.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/volume.h"
#include "tandem/trainer/checkpoint_damage.h"
#include "tandem/trainer/checkpoint_manifest.h"
#include "tandem/trainer/trainer.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;

void require_writable(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw io_error("--output_dir: cannot create", directory.native(), error.value());
  try {
    AtomicFile probe(directory / ".tandem-writable");
  } catch (const VolumeGone&) {
    throw;
  } catch (const IoError&) {
    raise<IoError>(
        "--output_dir: '{}' is not writable; choose another directory or change its permissions",
        directory.native());
  }
}

// Damage in a file that no manifest lists would silently change the results.
void warn_of_unchecked(const fs::path& checkpoint, Console& console) {
  if (const auto what = trainer::find_unchecked(checkpoint)) {
    console.warning(fmt::format(
        "{}: whether its files are as they were written is not checked, and the run resumes from "
        "them as they are",
        *what));
  }
}

// The newest checkpoint with undamaged files. Newer damaged ones are set aside, so that the
// rotation does not keep them as the newest.
std::optional<fs::path> newest_whole_checkpoint(const fs::path& output_dir,
                                                const std::vector<fs::path>& checkpoints,
                                                Console& console) {
  std::vector<std::pair<fs::path, std::string>> damaged;
  for (const fs::path& checkpoint : checkpoints) {
    const auto damage = trainer::find_damage(checkpoint);
    if (damage) {
      damaged.emplace_back(checkpoint, *damage);
      continue;
    }
    for (const auto& [path, what] : damaged) {
      console.warning(fmt::format(
          "{}; the run resumes from '{}', and the damaged checkpoint is "
          "now '{}'",
          what, checkpoint.native(), trainer::set_checkpoint_aside(path, "damaged").native()));
    }
    warn_of_unchecked(checkpoint, console);
    return checkpoint;
  }
  if (damaged.empty()) return std::nullopt;
  raise<DataError>(
      "{}, and no checkpoint in '{}' is whole; restore one, or pass --overwrite_output_dir to "
      "train from scratch",
      damaged.front().second, output_dir.native());
}

// A checkpoint named by the user: damage is an error, with the newest older one that is usable.
void require_whole_checkpoint(const fs::path& checkpoint, Console& console) {
  const auto damage = trainer::find_damage(checkpoint);
  if (!damage) return warn_of_unchecked(checkpoint, console);
  const fs::path named = checkpoint.has_filename() ? checkpoint : checkpoint.parent_path();
  const auto step = trainer::checkpoint_step(named);
  std::string advice = "restore it from a copy";
  for (const fs::path& other : trainer::complete_checkpoints(named.parent_path())) {
    if (!step || *trainer::checkpoint_step(other) >= *step || trainer::find_damage(other)) continue;
    advice = fmt::format("'{}' is whole: pass --resume_from_checkpoint {}", other.native(),
                         other.native());
    break;
  }
  const bool listed = is_there(named / trainer::kManifestFile);
  raise<DataError>("{}; {}{}", *damage, advice,
                   listed ? ". If it was changed on purpose, remove manifest.json" : "");
}

constexpr std::string_view kLockName = ".tandem-lock";
// Longest time for which a lock may outlive its host: the lease of an NFSv4 client (90 s) with a
// margin.
constexpr std::chrono::seconds kLongestLease{120};

// Waits for the lock of an earlier start: its host may be gone, and the server may detect that
// late.
std::optional<LockFile> wait_for_lock(const fs::path& path, bool same_job, Console& console) {
  const auto end = std::chrono::steady_clock::now() + kLongestLease;
  std::optional<LockFile> lock = LockFile::try_acquire(path);
  if (lock || !same_job) return lock;
  console.fact("note", fmt::format("an earlier start of this job ({}) still has the lock of its "
                                   "--output_dir; waiting up to {} s for it",
                                   LockFile::text_of(path), kLongestLease.count()));
  while (!lock && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    throw_if_interrupted();
    lock = LockFile::try_acquire(path);
  }
  return lock;
}

// Nothing if the file system has no locks.
std::optional<LockFile> lock_directory(const fs::path& directory, bool same_job, Console& console) {
  const fs::path path = directory / kLockName;
  std::optional<LockFile> lock;
  try {
    lock = wait_for_lock(path, same_job, console);
  } catch (const VolumeGone&) {
    throw;
  } catch (const IoError& error) {
    console.warning(
        fmt::format("{}; nothing keeps a second job out of this --output_dir while this one runs",
                    error.what()));
    return std::nullopt;
  }
  if (!lock) {
    const std::string holder = LockFile::text_of(path);
    raise<ConfigError>(
        "--output_dir: another job is running in '{}' ({}); wait for its end, or "
        "choose another directory",
        directory.native(), holder.empty() ? "unknown process" : holder);
  }
  lock->remove_at_end();
  return lock;
}

// Entries that may be in an output_dir that counts as empty.
bool is_left_over(const std::string& name) {
  return name == kLockName || name.starts_with("tmp-checkpoint-") ||
         name.starts_with("tandem-flight-");
}

// The checkpoint to resume from, if any: the flag's, else the newest of a previous run in
// output_dir.
std::optional<fs::path> find_resume_checkpoint(const trainer::TrainingArguments& training,
                                               const OutputDirectory& output_directory,
                                               Console& console) {
  if (training.resume_from_checkpoint) {
    if (training.do_train) require_whole_checkpoint(*training.resume_from_checkpoint, console);
    return fs::path(*training.resume_from_checkpoint);
  }
  const fs::path output_dir = training.output_dir;
  if (!training.do_train || !fs::is_directory(output_dir)) return std::nullopt;
  if (training.overwrite_output_dir && !output_directory.same_job()) return std::nullopt;
  trainer::restore_replaced_checkpoints(output_dir);
  std::vector<fs::path> checkpoints = trainer::complete_checkpoints(output_dir);
  if (training.overwrite_output_dir) {
    std::erase_if(checkpoints,
                  [&](const fs::path& one) { return output_directory.is_foreign(one); });
    if (checkpoints.empty()) return std::nullopt;
    console.fact("note",
                 "--overwrite_output_dir is of a job's first start; this is a restart, which goes "
                 "on from the job's own checkpoint");
  }
  if (const auto last = newest_whole_checkpoint(output_dir, checkpoints, console)) {
    console.script_line("INFO",
                        fmt::format("Checkpoint detected, resuming training at {}. To avoid this "
                                    "behavior, change the `--output_dir` "
                                    "or add `--overwrite_output_dir` to train from scratch.",
                                    last->native()));
    return last;
  }
  if (output_directory.same_job()) return std::nullopt;
  for (const auto& entry : fs::directory_iterator(output_dir)) {
    if (is_left_over(entry.path().filename().string())) continue;
    raise<ConfigError>(
        "Output directory ({}) already exists and is not empty. Use --overwrite_output_dir to "
        "overcome.",
        output_dir.native());
  }
  return std::nullopt;
}

// Shards of a run that resumes from `checkpoint`: those of --logical_shards, else the checkpoint's,
// which keep the order of the data and the bits. Hugging Face has no shards but ranks, so a
// checkpoint with fewer of them continues with those of this run, as it would there.
int shards_of_resumed_run(const fs::path& checkpoint, const trainer::ResumeState& saved,
                          int world_size, const trainer::TrainingArguments& training,
                          Console& console) {
  if (training.logical_shards) return *training.logical_shards;
  if (saved.logical_shards < world_size) {
    if (saved.from_python) return world_size;
    raise<ConfigError>(
        "'{}' was written with {} logical shards, so at most {} ranks can resume it bit by "
        "bit, not {}; pass --logical_shards {} to continue at the same step with another order of "
        "the data and other bits",
        checkpoint.native(), saved.logical_shards, saved.logical_shards, world_size, world_size);
  }
  if (saved.logical_shards != world_size) {
    console.fact("note", fmt::format("{} logical shards, as in the checkpoint, on {} ranks",
                                     saved.logical_shards, world_size));
  }
  return saved.logical_shards;
}

}  // namespace

void prepare_output(const trainer::TrainingArguments& training, PreparedOutput& output,
                    comm::Communicator& communicator, Console& console) {
  const OutputDirectory& output_directory = *output.directory;
  const bool is_main = communicator.rank() == 0;
  const bool own_directory = training.save_on_each_node && communicator.local_rank() == 0;
  if (is_main || own_directory) require_writable(training.output_dir);
  std::string resume;
  if (is_main) {
    output.lock = lock_directory(training.output_dir, output_directory.same_job(), console);
    if (output.lock) remove_abandoned_files(training.output_dir);
    if (const auto path = find_resume_checkpoint(training, output_directory, console))
      resume = path->native();
  }
  resume = broadcast_text(communicator, resume, 0);
  if (!resume.empty()) output.resume = resume;
}

void keep_locked(const fs::path& output_dir, std::optional<LockFile>& lock) {
  if (lock) return;
  try {
    lock = LockFile::try_acquire(output_dir / kLockName);
  } catch (const VolumeGone&) {
    throw;
  } catch (const IoError&) {  // no locks there, as logged at the start
  }
  if (lock) lock->remove_at_end();
}

void split_batch_sizes(int shards, trainer::TrainingArguments& training) {
  if (!training.split_batches) return;
  if (training.per_device_train_batch_size % shards != 0) {
    raise<ConfigError>(
        "--split_batches: --per_device_train_batch_size {} cannot be split evenly over {} shards",
        training.per_device_train_batch_size, shards);
  }
  training.per_device_train_batch_size /= shards;
  training.per_device_eval_batch_size = std::max(1, training.per_device_eval_batch_size / shards);
}

void adopt_checkpoint_settings(const fs::path& checkpoint, int world_size,
                               trainer::TrainingArguments& training, Console& console) {
  const trainer::ResumeState saved = trainer::Trainer::resume_state(checkpoint);
  training.logical_shards = shards_of_resumed_run(checkpoint, saved, world_size, training, console);
  const bool known = saved.per_device_train_batch_size > 0;  // old Trainers did not record it
  if (known && saved.per_device_train_batch_size != training.per_device_train_batch_size) {
    console.warning(
        fmt::format("--per_device_train_batch_size {} is replaced by the checkpoint's {}",
                    training.per_device_train_batch_size, saved.per_device_train_batch_size));
    training.per_device_train_batch_size = saved.per_device_train_batch_size;
  }
}

// The results of earlier stages; none for a file that cannot be read.
static nlohmann::ordered_json earlier_results(const fs::path& file) {
  const auto none = nlohmann::ordered_json::object();
  const auto text = read_file_if_exists(file);
  if (!text) return none;
  try {
    const auto results = parse_python_json(*text);
    return results.is_object() ? results : none;
  } catch (const nlohmann::json::exception&) {
    return none;
  }
}

void save_metrics(const fs::path& output_dir, std::string_view split,
                  const nlohmann::ordered_json& metrics) {
  constexpr PythonJsonOptions kStyle{.indent = 4, .sort_keys = true};
  write_file(output_dir / fmt::format("{}_results.json", split), python_json(metrics, kStyle));
  nlohmann::ordered_json all = earlier_results(output_dir / "all_results.json");
  for (const auto& [key, value] : metrics.items()) all[key] = value;
  for (auto& [key, value] : all.items()) {
    if (value.is_null()) value = std::numeric_limits<double>::quiet_NaN();
  }
  write_file(output_dir / "all_results.json", python_json(all, kStyle));
}

}  // namespace tandem::job
