#include "tandem/trainer/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/python_json.h"
#include "tandem/models/safetensors.h"
#include "tandem/models/weight_files.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kTemporaryPrefix = "tmp-checkpoint-";
constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
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

models::TensorView view(const std::string& name, const nn::ParameterSpec& parameter,
                        std::span<const float> arena) {
  return {.name = name,
          .dtype = models::DType::kF32,
          .shape = parameter.shape,
          .bytes = std::as_bytes(arena.subspan(parameter.offset, parameter.size))};
}

void write_optimizer(const fs::path& path, const nn::ParameterLayout& layout,
                     const OptimizerArenas& arenas, std::int64_t step) {
  std::vector<models::TensorView> tensors;
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (!parameter.trainable) continue;
    tensors.push_back(view("exp_avg." + parameter.name, parameter, arenas.exp_avg));
    tensors.push_back(view("exp_avg_sq." + parameter.name, parameter, arenas.exp_avg_sq));
  }
  models::write_safetensors(path, tensors, {{"format", "pt"}, {"step", std::to_string(step)}});
}

std::string resume_to_json(const ResumeState& resume) {
  ordered_json json;
  json["data_fingerprint"] = resume.data_fingerprint;
  json["gradient_accumulation_steps"] = resume.gradient_accumulation_steps;
  json["last_log_step"] = resume.last_log_step;
  json["logical_shards"] = resume.logical_shards;
  json["num_features"] = resume.num_features;
  json["per_device_train_batch_size"] = resume.per_device_train_batch_size;
  json["shard_loss_since_log"] = resume.shard_loss_since_log;
  json["total_loss"] = resume.total_loss;
  return python_json(json, {.indent = 2, .sort_keys = true}) + "\n";
}

ResumeState parse_resume(const std::string& text, const fs::path& where) {
  try {
    const auto json = ordered_json::parse(text);
    ResumeState resume;
    json.at("data_fingerprint").get_to(resume.data_fingerprint);
    json.at("gradient_accumulation_steps").get_to(resume.gradient_accumulation_steps);
    json.at("last_log_step").get_to(resume.last_log_step);
    json.at("logical_shards").get_to(resume.logical_shards);
    json.at("num_features").get_to(resume.num_features);
    json.at("per_device_train_batch_size").get_to(resume.per_device_train_batch_size);
    json.at("shard_loss_since_log").get_to(resume.shard_loss_since_log);
    json.at("total_loss").get_to(resume.total_loss);
    return resume;
  } catch (const nlohmann::json::exception& error) {
    raise<DataError>("'{}' is damaged: {}; choose another checkpoint", where.native(),
                     error.what());
  }
}

// `file`: a SafetensorsFile or WeightFiles.
template <class File>
void load_tensor(const File& file, const std::string& name, const nn::ParameterSpec& parameter,
                 std::span<float> arena) {
  const models::TensorView* tensor = file.find(name);
  if (tensor == nullptr) {
    raise<DataError>("'{}' has no tensor '{}': it is not a checkpoint of this model",
                     file.path().native(), name);
  }
  if (tensor->dtype != models::DType::kF32 || tensor->shape != parameter.shape) {
    raise<DataError>("'{}': tensor '{}' is {} {}, expected F32 {}", file.path().native(), name,
                     models::to_string(tensor->dtype), models::shape_to_string(tensor->shape),
                     models::shape_to_string(parameter.shape));
  }
  models::copy_to_float(*tensor, arena.subspan(parameter.offset, parameter.size));
}

// Checkpoints of output_dir, oldest first.
std::vector<std::pair<std::int64_t, fs::path>> list_checkpoints(const fs::path& output_dir) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    const auto step = checkpoint_step(entry.path());
    if (step && entry.is_directory()) found.emplace_back(*step, entry.path());
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

std::optional<fs::path> last_checkpoint(const fs::path& output_dir) {
  auto found = list_checkpoints(output_dir);
  std::reverse(found.begin(), found.end());
  for (const auto& [step, path] : found) {
    if (fs::exists(path / kTrainerStateFile)) return path;
  }
  return std::nullopt;
}

void remove_unfinished_checkpoints(const fs::path& output_dir) {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix))
      unfinished.push_back(entry.path());
  }
  for (const fs::path& path : unfinished) remove_tree(path);
}

std::size_t checkpoint_bytes(const nn::ParameterLayout& layout, bool with_optimizer) {
  return layout.num_parameters() * sizeof(float) * (with_optimizer ? 3 : 1);
}

fs::path save_checkpoint(const fs::path& output_dir, const CheckpointContents& contents) {
  const std::string number = std::to_string(contents.state.global_step);
  const fs::path target = output_dir / (std::string(kPrefix) + number);
  TemporaryDirectory work(output_dir / (std::string(kTemporaryPrefix) + number));

  contents.task.save_pretrained(work.path(), contents.arenas.weights);
  if (contents.with_optimizer) {
    write_optimizer(work.path() / kOptimizerFile, contents.task.layout(), contents.arenas,
                    contents.state.global_step);
  }
  write_file(work.path() / "training_args.json", contents.training_arguments_json);
  write_file(work.path() / kResumeFile, resume_to_json(contents.resume));
  write_file(work.path() / kTrainerStateFile, contents.state.to_json());

  // A checkpoint of this step exists when a run was resumed from an older one: it is replaced only
  // now that the new one is complete.
  const fs::path replaced = output_dir / (std::string(kTemporaryPrefix) + number + "-replaced");
  std::error_code error;
  if (fs::exists(target)) {
    remove_tree(replaced);
    fs::rename(target, replaced, error);
    if (error) throw io_error("cannot replace", target.native(), error.value());
  }
  fs::rename(work.path(), target, error);
  if (error) throw io_error("cannot rename to", target.native(), error.value());
  work.release();
  sync_directory(output_dir);
  remove_tree(replaced);
  return target;
}

LoadedCheckpoint load_checkpoint_state(const fs::path& directory) {
  if (!fs::is_directory(directory)) {
    raise<ConfigError>("--resume_from_checkpoint: '{}' is not a directory", directory.native());
  }
  const auto state = read_file_if_exists(directory / kTrainerStateFile);
  const auto resume = read_file_if_exists(directory / kResumeFile);
  (void)models::find_weights(directory);  // throws when there are none
  if (!state || !resume || !fs::exists(directory / kOptimizerFile)) {
    std::string missing;
    for (const auto file : {kTrainerStateFile, kResumeFile, kOptimizerFile}) {
      if (!fs::exists(directory / file))
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", file);
    }
    raise<DataError>(
        "'{}' cannot be resumed: it has no {} (written with --save_only_model, or by another "
        "program); pass it as "
        "--model_name_or_path to start from its weights",
        directory.native(), missing);
  }
  return {TrainerState::parse(*state, (directory / kTrainerStateFile).native()),
          parse_resume(*resume, directory / kResumeFile)};
}

void load_checkpoint_arenas(const fs::path& directory, const nn::ParameterLayout& layout,
                            const OptimizerArenas& arenas) {
  const models::WeightFiles weights(directory);
  const models::SafetensorsFile moments(directory / kOptimizerFile);
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    load_tensor(weights, parameter.name, parameter, arenas.weights);
    if (!parameter.trainable) continue;
    load_tensor(moments, "exp_avg." + parameter.name, parameter, arenas.exp_avg);
    load_tensor(moments, "exp_avg_sq." + parameter.name, parameter, arenas.exp_avg_sq);
  }
}

std::vector<fs::path> rotate_checkpoints(const fs::path& output_dir, int limit,
                                         const std::optional<std::string>& best) {
  auto found = list_checkpoints(output_dir);
  if (found.empty() || limit < 1) return {};
  const auto is_best = [&](const fs::path& path) {
    std::error_code ignored;
    return best && fs::equivalent(path, *best, ignored);
  };
  // The best one stays and counts; with a limit of 1 the newest stays beside it.
  std::vector<fs::path> removed;
  std::size_t kept = found.size();
  const auto floor = static_cast<std::size_t>(limit);
  for (std::size_t i = 0; i + 1 < found.size() && kept > floor; ++i) {
    if (is_best(found[i].second)) continue;
    remove_tree(found[i].second);
    removed.push_back(found[i].second);
    --kept;
  }
  return removed;
}

}  // namespace tandem::trainer
