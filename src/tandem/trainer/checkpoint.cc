#include "tandem/trainer/checkpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/volume.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/pretrained/adapter_files.h"
#include "tandem/models/pretrained/weight_files.h"
#include "tandem/trainer/checkpoint_manifest.h"
#include "tandem/trainer/python_checkpoint.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kTemporaryPrefix = "tmp-checkpoint-";
constexpr std::string_view kStale = "stale";
constexpr std::string_view kStalePrefix = "stale-checkpoint-";
constexpr std::string_view kOldOptimizerFile = "optimizer.safetensors";  // read, no longer written
constexpr std::string_view kTrainerStateFile = "trainer_state.json";
constexpr std::string_view kResumeFile = "tandem_state.json";

void remove_tree(const fs::path& directory) {
  std::error_code error;
  fs::remove_all(directory, error);
  if (error) throw io_error("cannot remove", directory.native(), error.value());
}

// Removes the directory unless release() was called: a failed checkpoint leaves nothing behind.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(fs::path path) : path_(std::move(path)) {
    remove_tree(path_);
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) throw io_error("cannot create directory", path_.native(), error.value());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const fs::path& path() const { return path_; }
  void release() { path_.clear(); }

 private:
  fs::path path_;
};

void rename_directory(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error)
    throw io_error(fmt::format("cannot rename '{}' to", from.native()), to.native(), error.value());
}

// Gives the finished directory its name. A checkpoint of this step exists when a run was resumed
// from an older one; the two change places at once, or, where the file system cannot do that, one
// after the other, and restore_replaced_checkpoints() mends what a death in between leaves.
void put_in_place(TemporaryDirectory& work, const fs::path& target, const fs::path& replaced) {
  if (!fs::exists(target)) {
    rename_directory(work.path(), target);
    work.release();
    sync_directory(target.parent_path());
    return;
  }
  if (::renameat2(AT_FDCWD, work.path().c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    sync_directory(target.parent_path());
    return;  // and `work` removes the old one
  }
  if (errno != EINVAL && errno != ENOSYS) throw io_error("cannot replace", target.native(), errno);
  remove_tree(replaced);
  rename_directory(target, replaced);
  rename_directory(work.path(), target);
  work.release();
  sync_directory(target.parent_path());
  remove_tree(replaced);
}

// Under another name first: what is half removed is not taken for a checkpoint.
void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path removing = checkpoint.parent_path() / fmt::format("{}{}-removed", kTemporaryPrefix,
                                                                   checkpoint.filename().native());
  rename_directory(checkpoint, removing);
  remove_tree(removing);
}

// `tensor`: one of `file`, or null when it has none of this name.
void load_tensor(const formats::TensorView* tensor, const fs::path& file, const std::string& name,
                 const std::vector<std::size_t>& shape, std::span<float> destination) {
  if (tensor == nullptr) {
    raise<DataError>("'{}' has no tensor '{}': it is not a checkpoint of this model and optimizer",
                     file.native(), name);
  }
  if (tensor->dtype != formats::DType::kF32 || tensor->shape != shape) {
    raise<DataError>("'{}': tensor '{}' is {} {}, expected F32 {}", file.native(), name,
                     formats::to_string(tensor->dtype), formats::shape_to_string(tensor->shape),
                     formats::shape_to_string(shape));
  }
  formats::copy_to_float(*tensor, destination);
}

// Checkpoints of output_dir, oldest first.
std::vector<std::pair<std::int64_t, fs::path>> list_checkpoints(const fs::path& output_dir) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  for (const fs::path& path : list_directory(output_dir)) {
    const auto step = checkpoint_step(path);
    if (step && is_directory_there(path)) found.emplace_back(*step, path);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::optional<std::int64_t> checkpoint_step(const fs::path& directory) {
  const std::string name =
      (directory.has_filename() ? directory : directory.parent_path()).filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || rest != end || step < 0) return std::nullopt;
  return step;
}

std::vector<fs::path> complete_checkpoints(const fs::path& output_dir) {
  std::vector<fs::path> complete;
  for (const auto& [step, path] : list_checkpoints(output_dir)) {
    if (is_there(path / kTrainerStateFile)) complete.push_back(path);
  }
  std::reverse(complete.begin(), complete.end());
  return complete;
}

std::optional<fs::path> last_checkpoint(const fs::path& output_dir) {
  const std::vector<fs::path> complete = complete_checkpoints(output_dir);
  return complete.empty() ? std::nullopt : std::optional(complete.front());
}

fs::path set_checkpoint_aside(const fs::path& checkpoint, std::string_view why) {
  const std::string name = fmt::format("{}-{}", why, checkpoint.filename().string());
  fs::path target = checkpoint.parent_path() / name;
  for (int copy = 2; fs::exists(target); ++copy)
    target = checkpoint.parent_path() / fmt::format("{}-{}", name, copy);
  rename_directory(checkpoint, target);
  return target;
}

void restore_replaced_checkpoints(const fs::path& output_dir) {
  constexpr std::string_view kReplaced = "-replaced";
  std::vector<std::pair<fs::path, fs::path>> found;
  for (const fs::path& path : list_directory(output_dir)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kTemporaryPrefix) || !name.ends_with(kReplaced)) continue;
    const std::size_t digits = name.size() - kTemporaryPrefix.size() - kReplaced.size();
    const fs::path target =
        output_dir / (std::string(kPrefix) + name.substr(kTemporaryPrefix.size(), digits));
    if (!fs::exists(target)) found.emplace_back(path, target);
  }
  for (const auto& [from, to] : found) rename_directory(from, to);
}

void remove_unfinished_checkpoints(const fs::path& output_dir) {
  for (const fs::path& path : list_directory(output_dir)) {
    if (path.filename().string().starts_with(kTemporaryPrefix)) remove_tree(path);
  }
}

std::size_t checkpoint_bytes(const nn::ParameterLayout& layout, std::size_t optimizer_elements) {
  const std::size_t weights =
      layout.has_frozen_base() ? layout.num_trainable_parameters() : layout.num_parameters();
  return (weights + optimizer_elements) * sizeof(float);
}

fs::path save_checkpoint(const fs::path& output_dir, const CheckpointContents& contents) {
  const std::string number = std::to_string(contents.state.global_step);
  fs::path target = output_dir / (std::string(kPrefix) + number);
  TemporaryDirectory work(output_dir / (std::string(kTemporaryPrefix) + number));

  contents.task.save_pretrained(work.path(), contents.arenas.weights);
  if (contents.optimization) {
    write_python_optimizer(work.path(), contents.task.layout(), contents.arenas,
                           *contents.optimization);
    write_python_schedule(work.path(), contents.task.layout(), *contents.optimization);
  }
  write_file(work.path() / "training_args.json", contents.training_arguments_json);
  write_file(work.path() / kResumeFile, contents.resume.to_json());
  write_file(work.path() / kTrainerStateFile, contents.state.to_json());
  write_manifest(work.path());

  put_in_place(work, target, output_dir / (std::string(kTemporaryPrefix) + number + "-replaced"));
  return target;
}

LoadedCheckpoint load_checkpoint_state(const fs::path& directory) {
  if (!fs::is_directory(directory)) {
    raise<ConfigError>("--resume_from_checkpoint: '{}' is not a directory", directory.native());
  }
  const auto state = read_file_if_exists(directory / kTrainerStateFile);
  const auto resume = read_file_if_exists(directory / kResumeFile);
  if (!models::is_adapter_directory(directory))
    (void)models::find_weights(directory);  // throws when there are none
  if (state && is_python_checkpoint(directory)) {
    LoadedCheckpoint loaded = {
        TrainerState::parse(*state, (directory / kTrainerStateFile).native()), {}};
    loaded.resume = python_resume_state(directory, loaded.state);
    return loaded;
  }
  const bool has_optimizer =
      fs::exists(directory / kOptimizerFile) || fs::exists(directory / kOldOptimizerFile);
  if (!state || !resume || !has_optimizer) {
    std::string missing;
    for (const auto file : {kTrainerStateFile, kResumeFile, kOptimizerFile}) {
      if (!fs::exists(directory / file) && (file != kOptimizerFile || !has_optimizer))
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", file);
    }
    raise<DataError>(
        "'{}' cannot be resumed: it has no {} (written with --save_only_model, or by another "
        "program); pass it as "
        "--model_name_or_path to start from its weights",
        directory.native(), missing);
  }
  return {TrainerState::parse(*state, (directory / kTrainerStateFile).native()),
          ResumeState::parse(*resume, (directory / kResumeFile).native())};
}

void load_checkpoint_arenas(const fs::path& directory, const nn::ParameterLayout& layout,
                            const TrainedArenas& arenas) {
  const models::TrainedWeights weights(directory, layout);
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (!weights.holds(parameter)) continue;
    load_tensor(weights.find(parameter), weights.path(), parameter.name, parameter.shape,
                parameter.values_in(arenas.weights));
  }
  if (fs::exists(directory / kOptimizerFile)) {
    load_python_optimizer(directory, layout, arenas);
    return;
  }
  const formats::SafetensorsFile state(directory / kOldOptimizerFile);
  for (const optim::StateTensor& tensor : arenas.state_tensors) {
    load_tensor(state.find(tensor.name), state.path(), tensor.name, tensor.shape,
                arenas.optimizer_state.subspan(tensor.offset, tensor.size));
  }
}

SetAside set_stale_checkpoints_aside(const fs::path& output_dir,
                                     const std::optional<fs::path>& resumed) {
  std::error_code ignored;
  const bool continues_here =
      resumed && fs::equivalent(fs::absolute(*resumed).parent_path(), output_dir, ignored);
  const std::int64_t last_of_run = continues_here ? checkpoint_step(*resumed).value_or(-1) : -1;
  std::vector<fs::path> stale;  // oldest first
  for (const auto& [step, path] : list_checkpoints(output_dir))
    if (step > last_of_run) stale.push_back(path);
  if (stale.empty()) return {};
  // A run cannot resume from a directory without a state.
  auto newest = std::find_if(stale.rbegin(), stale.rend(), [](const fs::path& path) {
    return is_there(path / kTrainerStateFile);
  });
  if (newest == stale.rend()) newest = stale.rbegin();
  SetAside result;
  for (const fs::path& earlier : list_directory(output_dir)) {
    const bool in_use = resumed && fs::equivalent(earlier, *resumed, ignored);
    if (in_use || !earlier.filename().native().starts_with(kStalePrefix)) continue;
    remove_checkpoint(earlier);
    result.removed.push_back(earlier);
  }
  result.kept = set_checkpoint_aside(*newest, kStale);
  for (const fs::path& older : stale) {
    if (older == *newest) continue;
    remove_checkpoint(older);
    result.removed.push_back(older);
  }
  return result;
}

std::vector<fs::path> rotate_checkpoints(const fs::path& output_dir, int limit,
                                         const std::optional<std::string>& best) {
  auto found = list_checkpoints(output_dir);
  if (found.empty() || limit < 1) return {};
  const auto is_best = [&](const fs::path& path) {
    std::error_code ignored;
    return best && fs::equivalent(path, *best, ignored);
  };
  // The best one stays and counts; with a limit of 1 the newest stays in addition.
  std::vector<fs::path> removed;
  std::size_t kept = found.size();
  const auto floor = static_cast<std::size_t>(limit);
  for (std::size_t i = 0; i + 1 < found.size() && kept > floor; ++i) {
    if (is_best(found[i].second)) continue;
    remove_checkpoint(found[i].second);
    removed.push_back(found[i].second);
    --kept;
  }
  return removed;
}

}  // namespace tandem::trainer
