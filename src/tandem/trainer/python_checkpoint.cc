#include "tandem/trainer/python_checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "tandem/core/error.h"
#include "tandem/models/safetensors.h"
#include "tandem/models/torch_file.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using models::TorchValue;

constexpr std::string_view kOptimizerFile = "optimizer.pt";
constexpr std::string_view kSchedulerFile = "scheduler.pt";

// The modules of an encoder's layer and of its embeddings in the order of their definition.
constexpr std::array<std::string_view, 18> kModules = {"embeddings.word_embeddings",
                                                       "embeddings.position_embeddings",
                                                       "embeddings.token_type_embeddings",
                                                       "embeddings.LayerNorm",
                                                       "attention.self.query",
                                                       "attention.self.key",
                                                       "attention.self.value",
                                                       "attention.output.dense",
                                                       "attention.output.LayerNorm",
                                                       "intermediate.dense",
                                                       "attention.q_lin",
                                                       "attention.k_lin",
                                                       "attention.v_lin",
                                                       "attention.out_lin",
                                                       "sa_layer_norm",
                                                       "ffn.lin1",
                                                       "ffn.lin2",
                                                       "output_layer_norm"};

// Behind the modules above, and no ending of theirs may be taken for it.
constexpr std::array<std::string_view, 2> kLastModules = {"output.dense", "output.LayerNorm"};

// 0: embeddings; 1 + l: layer l; the head comes last.
std::size_t section_of(std::string_view name) {
  if (name.find("embeddings.") != std::string_view::npos) return 0;
  constexpr std::string_view kLayer = "layer.";
  const std::size_t at = name.find(kLayer);
  if (at == std::string_view::npos) return std::numeric_limits<std::size_t>::max();
  std::size_t layer = 0;
  std::from_chars(name.data() + at + kLayer.size(), name.data() + name.size(), layer);
  return layer + 1;
}

std::size_t module_of(std::string_view name) {
  const std::string_view module = name.substr(0, name.rfind('.'));
  const auto found = std::find_if(kModules.begin(), kModules.end(),
                                  [&](std::string_view one) { return module.ends_with(one); });
  if (found != kModules.end()) return static_cast<std::size_t>(found - kModules.begin());
  const auto last = std::find_if(kLastModules.begin(), kLastModules.end(),
                                 [&](std::string_view one) { return module.ends_with(one); });
  return kModules.size() + static_cast<std::size_t>(last - kLastModules.begin());
}

// How many ranks wrote random states: rng_state.pth is one, rng_state_<rank>.pth one each.
int ranks_of(const fs::path& directory) {
  int ranks = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rng_state_") && name.ends_with(".pth")) ++ranks;
  }
  return std::max(1, ranks);
}

// Only ReduceLROnPlateau has a memory of its own; every other schedule follows from the step.
std::optional<optim::PlateauSchedule::State> plateau_of(const TorchValue& scheduler) {
  const auto num_bad = scheduler.find("num_bad_epochs");
  if (!num_bad) return std::nullopt;
  optim::PlateauSchedule::State state;
  state.learning_rate = scheduler["_last_lr"][0].as_double();
  const double best = scheduler["best"].as_double();
  if (std::isfinite(best)) state.best = best;
  state.num_bad = static_cast<std::uint64_t>(std::max<std::int64_t>(0, num_bad->as_int()));
  state.cooldown_left =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, scheduler["cooldown_counter"].as_int()));
  return state;
}

// "exp_avg.<parameter>" -> {"exp_avg", "<parameter>"}
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const std::size_t dot = name.find('.');
  return {name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace

bool is_python_checkpoint(const fs::path& directory) {
  return fs::exists(directory / kOptimizerFile) && !fs::exists(directory / "tandem_state.json");
}

ResumeState python_resume_state(const fs::path& directory, const TrainerState& state) {
  ResumeState resume;
  resume.from_python = true;
  resume.logical_shards = ranks_of(directory);
  resume.per_device_train_batch_size = static_cast<int>(state.train_batch_size);
  resume.last_log_step = state.global_step;
  resume.shard_loss_since_log.assign(static_cast<std::size_t>(resume.logical_shards), 0.0);
  std::int64_t logged = 0;
  for (const auto& entry : state.log_history) {
    if (!entry.contains("loss") || !entry.contains("step")) continue;
    const auto step = entry["step"].get<std::int64_t>();
    resume.total_loss += entry["loss"].get<double>() * static_cast<double>(step - logged);
    logged = step;
  }
  if (fs::exists(directory / kSchedulerFile)) {
    const models::TorchFile scheduler(directory / kSchedulerFile);
    resume.plateau = plateau_of(scheduler.root());
  }
  return resume;
}

std::vector<std::string_view> python_parameter_order(const nn::ParameterLayout& layout) {
  std::vector<const nn::ParameterSpec*> order;
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (parameter.trainable) order.push_back(&parameter);
  }
  const auto key = [](const nn::ParameterSpec* parameter) {
    const std::string_view name = parameter->name;
    return std::tuple(!parameter->weight_decay, section_of(name), module_of(name),
                      name.ends_with(".bias"));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto* a, const auto* b) { return key(a) < key(b); });
  std::vector<std::string_view> names;
  for (const nn::ParameterSpec* parameter : order) names.emplace_back(parameter->name);
  return names;
}

void load_python_optimizer(const fs::path& directory, const nn::ParameterLayout& layout,
                           const TrainedArenas& arenas) {
  const models::TorchFile file(directory / kOptimizerFile);
  const TorchValue states = file.root()["state"];
  std::size_t numbered = 0;
  for (const TorchValue& group : file.root()["param_groups"].elements())
    numbered += group["params"].size();
  const std::vector<std::string_view> order = python_parameter_order(layout);
  if (numbered != order.size()) {
    raise<DataError>("'{}' is the state of {} parameters, this model has {}: it is another model's",
                     file.path().native(), numbered, order.size());
  }
  std::unordered_map<std::string_view, std::int64_t> numbers;
  for (std::size_t i = 0; i < order.size(); ++i) numbers[order[i]] = static_cast<std::int64_t>(i);
  for (const optim::StateTensor& tensor : arenas.state_tensors) {
    const auto [key, parameter] = split_name(tensor.name);
    const auto state = states.find(numbers.at(parameter));
    const auto value = state ? state->find(key) : std::nullopt;
    if (!value) {
      raise<DataError>("'{}' has no {} of {}: pass the --optim that the run had",
                       file.path().native(), key, parameter);
    }
    const models::TensorView& found = value->as_tensor();
    if (found.dtype != models::DType::kF32 || found.shape != tensor.shape) {
      raise<DataError>("'{}': {} of {} is {} {}, expected F32 {}", file.path().native(), key,
                       parameter, models::to_string(found.dtype),
                       models::shape_to_string(found.shape), models::shape_to_string(tensor.shape));
    }
    models::copy_to_float(found, arenas.optimizer_state.subspan(tensor.offset, tensor.size));
  }
}

}  // namespace tandem::trainer
