#include "tandem/trainer/python_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/thread_pool.h"
#include "tandem/core/whole_number.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/torch_file.h"
#include "tandem/formats/torch_writer.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using formats::TorchItem;
using formats::TorchValue;
using optim::OptimizerName;

// How many ranks wrote random states: rng_state.pth is one, rng_state_<rank>.pth one each.
int ranks_of(const fs::path& directory) {
  int ranks = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rng_state_") && name.ends_with(".pth")) ++ranks;
  }
  return std::max(1, ranks);
}

std::uint64_t count_of(const TorchValue& scheduler, std::string_view key) {
  const auto value = scheduler.find(key);
  return value ? static_cast<std::uint64_t>(std::max<std::int64_t>(0, value->as_int())) : 0;
}

// Only ReduceLROnPlateau and GreedyLR have a memory of their own; every other schedule follows from
// the step.
std::optional<optim::MetricSchedule::State> metric_schedule_of(const TorchValue& scheduler) {
  if (!scheduler.find("num_bad_epochs")) return std::nullopt;
  optim::MetricSchedule::State state;
  state.learning_rate = scheduler["_last_lr"][0].as_double();
  if (const auto best = scheduler.find("best"); best && std::isfinite(best->as_double()))
    state.best = best->as_double();
  state.num_bad = count_of(scheduler, "num_bad_epochs");
  state.cooldown_left = count_of(scheduler, "cooldown_counter");
  state.num_good = count_of(scheduler, "num_good_epochs");
  state.warmup_left = count_of(scheduler, "warmup_counter");
  state.reset_left = static_cast<std::int64_t>(count_of(scheduler, "reset_start"));
  if (const auto window = scheduler.find("_streaming_avg")) {
    for (const TorchValue& value : (*window)["values"].elements())
      state.window.push_back(value.as_double());
    state.window_sum = (*window)["sum"].as_double();
  }
  return state;
}

// "exp_avg.<parameter>" -> {"exp_avg", "<parameter>"}
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const std::size_t dot = name.find('.');
  return {name.substr(0, dot), name.substr(dot + 1)};
}

ParameterOrder names_of(const std::vector<optim::ParameterGroup>& groups) {
  ParameterOrder names;
  for (const optim::ParameterGroup& group : groups)
    for (const nn::ParameterSpec* parameter : group.parameters) names.emplace_back(parameter->name);
  return names;
}

// Checkpoints of tandem without param_names are from before they were written: what is neither an
// embedding nor in a layer came last, in the order of the layout.
ParameterOrder order_of_older_tandem(const nn::ParameterLayout& layout) {
  const auto comes_last = [](const nn::ParameterSpec* parameter) {
    return parameter->name.find("embeddings.") == std::string::npos &&
           parameter->name.find("layer.") == std::string::npos;
  };
  auto order = models::parameters_as_defined(layout, models::DefinitionOrder::kTransformers4);
  std::erase_if(order, comes_last);
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (comes_last(&parameter)) order.push_back(&parameter);
  }
  return names_of(optim::parameter_groups(order, {}));
}

// The param_groups of an optimizer.pt.
struct Groups {
  std::vector<std::size_t> sizes;
  std::vector<std::int64_t> numbers;  // keys of the states, group after group
  ParameterOrder names;               // as many, or none: PyTorch's optimizers need not have them
};

Groups groups_of(const TorchValue& root) {
  Groups groups;
  for (const TorchValue& group : root["param_groups"].elements()) {
    groups.sizes.push_back(group["params"].size());
    for (const TorchValue& number : group["params"].elements())
      groups.numbers.push_back(number.as_int());
    const auto names = group.find("param_names");
    if (!names) continue;
    for (const TorchValue& name : names->elements()) groups.names.push_back(name.as_string());
  }
  if (groups.names.size() != groups.numbers.size()) groups.names.clear();
  return groups;
}

// Without names the numbers follow from the groups, which are then the Trainer's.
void check_groups(const Groups& groups, const nn::ParameterLayout& layout, const fs::path& file) {
  const auto expected = optim::parameter_groups(
      models::parameters_as_defined(layout, models::DefinitionOrder::kTransformers5), {});
  const std::size_t decaying = expected[0].parameters.size(),
                    others = expected[1].parameters.size();
  if (groups.numbers.size() != decaying + others) {
    raise<DataError>("'{}' is the state of {} parameters, this model has {}: it is another model's",
                     file.native(), groups.numbers.size(), decaying + others);
  }
  if (groups.names.empty() && groups.sizes != std::vector{decaying, others}) {
    raise<DataError>(
        "'{}' has groups of {} parameters, expected {} with weight decay and {} without, as "
        "Hugging Face's Trainer makes them",
        file.native(), fmt::join(groups.sizes, " and "), decaying, others);
  }
}

// The orders that the states of a checkpoint may have. Their shapes distinguish them: a table of
// positions has more rows than one of token types, and the head is smaller than the vocabulary.
std::vector<ParameterOrder> possible_orders(const Groups& groups, const nn::ParameterLayout& layout,
                                            const fs::path& directory) {
  if (!groups.names.empty()) return {groups.names};
  if (!is_python_checkpoint(directory)) return {order_of_older_tandem(layout)};
  return {python_parameter_order(layout, models::DefinitionOrder::kTransformers5),
          python_parameter_order(layout, models::DefinitionOrder::kTransformers5HeadFirst),
          python_parameter_order(layout, models::DefinitionOrder::kTransformers4)};
}

// The states of an optimizer.pt, taken in one order of the parameters.
class StateReader {
 public:
  StateReader(const formats::TorchFile& file, std::span<const std::int64_t> numbers,
              const ParameterOrder& order)
      : path_(file.path().native()), states_(file.root()["state"]) {
    for (std::size_t i = 0; i < order.size(); ++i) numbers_[order[i]] = numbers[i];
  }

  // Why this is not the state that `tensors` expect: a message; nothing when all fit.
  std::optional<std::string> first_misfit(std::span<const optim::StateTensor> tensors) const {
    for (const optim::StateTensor& tensor : tensors) {
      if (auto misfit = misfit_of(tensor)) return misfit;
    }
    return std::nullopt;
  }

  // All tensors of the arenas, which fit.
  void read(const TrainedArenas& arenas) const {
    for (const optim::StateTensor& tensor : arenas.state_tensors) {
      formats::copy_to_float(find(tensor)->as_tensor(),
                             arenas.optimizer_state.subspan(tensor.offset, tensor.size));
    }
  }

 private:
  std::optional<TorchValue> find(const optim::StateTensor& tensor) const {
    const auto [key, parameter] = split_name(tensor.name);
    const auto number = numbers_.find(parameter);
    const auto state = number == numbers_.end() ? std::nullopt : states_.find(number->second);
    return state ? state->find(key) : std::nullopt;
  }

  std::optional<std::string> misfit_of(const optim::StateTensor& tensor) const {
    const auto [key, parameter] = split_name(tensor.name);
    const auto number = numbers_.find(parameter);
    if (number == numbers_.end()) {
      return fmt::format("'{}' names no parameter {}: it is another model's", path_, parameter);
    }
    const auto value = find(tensor);
    if (!value) {
      return fmt::format("'{}' has no {} of {}: pass the --optim that the run had", path_, key,
                         parameter);
    }
    const formats::TensorView& found = value->as_tensor();
    if (found.dtype == formats::DType::kF32 && found.shape == tensor.shape) return std::nullopt;
    return fmt::format(
        "'{}': {} of {} (parameter {}) is {} {}, expected F32 {}: the file is another model's, or "
        "its parameters have another order; pass the checkpoint as --model_name_or_path to start "
        "from its weights",
        path_, key, parameter, number->second, formats::to_string(found.dtype),
        formats::shape_to_string(found.shape), formats::shape_to_string(tensor.shape));
  }

  std::string path_;
  TorchValue states_;
  std::unordered_map<std::string_view, std::int64_t> numbers_;  // numbers of the parameters
};

// That of the family in the config.json of the checkpoint, which is written before.
models::DefinitionOrder order_to_write(const fs::path& directory) {
  const auto text = read_file_if_exists(directory / "config.json");
  if (!text) return models::DefinitionOrder::kTransformers5;
  const auto config = try_parse_json(*text);
  return models::newest_definition_order(config.is_object() ? config.value("model_type", "") : "");
}

// How an optimizer of Python counts its updates.
enum class StepCount { kNone, kInt, kTensor };

StepCount step_count_of(OptimizerName name) {
  switch (name) {
    case OptimizerName::kSgd:
      return StepCount::kNone;
    case OptimizerName::kAdamwHf:
    case OptimizerName::kAdafactor:
      return StepCount::kInt;
    case OptimizerName::kAdamwTorch:
    case OptimizerName::kAdagrad:
      break;
  }
  return StepCount::kTensor;
}

// One after another: lists of two in braces make gcc 12 warn of variants that it believes unset.
TorchItem pair_of(double first, double second) {
  TorchItem::List pair;
  pair.elements.push_back({first});
  pair.elements.push_back({second});
  pair.is_tuple = true;
  return {std::move(pair)};
}

// The keys that torch's optimizers have for how, not what, they compute.
void set_implementation(TorchItem::Dict& group) {
  group.set("maximize", false);
  group.set("foreach", std::monostate());
}

// The settings of a parameter group in addition to its decay and rate, in the order of the
// constructor.
void set_options(const optim::OptimizerOptions& o, TorchItem::Dict& group) {
  switch (o.name) {
    case OptimizerName::kAdamwTorch:
      group.set("betas", pair_of(o.beta1, o.beta2));
      group.set("eps", o.epsilon);
      group.set("amsgrad", false);
      set_implementation(group);
      group.set("capturable", false);
      group.set("differentiable", false);
      group.set("fused", true);  // the Trainer's default form of AdamW
      group.set("decoupled_weight_decay", true);
      return;
    case OptimizerName::kAdamwHf:
      group.set("betas", pair_of(o.beta1, o.beta2));
      group.set("eps", o.epsilon);
      group.set("correct_bias", true);
      return;
    case OptimizerName::kSgd:
      group.set("momentum", o.momentum);
      group.set("dampening", o.dampening);
      group.set("nesterov", o.nesterov);
      set_implementation(group);
      group.set("differentiable", false);
      group.set("fused", std::monostate());
      return;
    case OptimizerName::kAdagrad:
      group.set("lr_decay", o.adagrad_lr_decay);
      group.set("eps", o.adagrad_epsilon);
      group.set("initial_accumulator_value", o.initial_accumulator_value);
      set_implementation(group);
      group.set("differentiable", false);
      group.set("fused", std::monostate());
      return;
    case OptimizerName::kAdafactor:
      constexpr double kScaleEpsilon = 1e-3;  // unused without scale_parameter
      group.set("eps", pair_of(o.squared_gradient_epsilon, kScaleEpsilon));
      group.set("clip_threshold", o.clip_threshold);
      group.set("decay_rate", o.decay_rate);
      group.set("beta1", std::monostate());
      group.set("scale_parameter", false);
      group.set("relative_step", false);
      group.set("warmup_init", false);
      return;
  }
}

std::vector<optim::ParameterGroup> groups_to_write(const fs::path& directory,
                                                   const nn::ParameterLayout& layout,
                                                   const OptimizationState& state) {
  return optim::parameter_groups(models::parameters_as_defined(layout, order_to_write(directory)),
                                 state.optimizer.rates);
}

// `first`: the number of its first parameter.
TorchItem group_item(const OptimizationState& state, const optim::ParameterGroup& own,
                     std::size_t first) {
  TorchItem::Dict group;
  group.set("weight_decay", own.weight_decay ? state.optimizer.weight_decay : 0.0);
  group.set("lr", state.next_learning_rate * own.rate_factor);
  set_options(state.optimizer, group);
  if (!state.metric_schedule) group.set("initial_lr", state.peak_learning_rate * own.rate_factor);
  TorchItem::List numbers, names;
  for (std::size_t i = 0; i < own.parameters.size(); ++i) {
    numbers.elements.push_back({static_cast<std::int64_t>(first + i)});
    names.elements.push_back({own.parameters[i]->name});
  }
  group.set("params", std::move(numbers));
  group.set("param_names", std::move(names));
  return {std::move(group)};
}

// The state that the constructors of ReduceLROnPlateau and GreedyLR do not take.
void set_metric_schedule(const optim::MetricSchedule::State& state, TorchItem::Dict& root) {
  if (state.best) root.set("best", *state.best);
  root.set("num_bad_epochs", static_cast<std::int64_t>(state.num_bad));
  root.set("cooldown_counter", static_cast<std::int64_t>(state.cooldown_left));
  if (state.reset_left == 0) return;  // no GreedyLR
  root.set("num_good_epochs", static_cast<std::int64_t>(state.num_good));
  root.set("warmup_counter", static_cast<std::int64_t>(state.warmup_left));
  root.set("reset_start", state.reset_left);
  if (state.window.empty()) return;
  TorchItem::List values;
  for (const double value : state.window) values.elements.push_back({value});
  TorchItem::Dict window;
  window.set("values", std::move(values));
  window.set("sum", state.window_sum);
  root.set("_streaming_avg", std::move(window));
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
    const auto step = whole_number<std::int64_t>(entry["step"]);
    resume.total_loss += entry["loss"].get<double>() * static_cast<double>(step - logged);
    logged = step;
  }
  if (fs::exists(directory / kSchedulerFile)) {
    const formats::TorchFile scheduler(directory / kSchedulerFile);
    resume.metric_schedule = metric_schedule_of(scheduler.root());
  }
  return resume;
}

ParameterOrder python_parameter_order(const nn::ParameterLayout& layout,
                                      models::DefinitionOrder order) {
  return names_of(optim::parameter_groups(models::parameters_as_defined(layout, order), {}));
}

void load_python_optimizer(const fs::path& directory, const nn::ParameterLayout& layout,
                           const TrainedArenas& arenas) {
  const formats::TorchFile file(directory / kOptimizerFile);
  const Groups groups = groups_of(file.root());
  check_groups(groups, layout, file.path());
  std::string reason;
  for (const ParameterOrder& order : possible_orders(groups, layout, directory)) {
    const StateReader reader(file, groups.numbers, order);
    const auto misfit = reader.first_misfit(arenas.state_tensors);
    if (!misfit) return reader.read(arenas);
    if (reason.empty()) reason = *misfit;
  }
  raise<DataError>("{}", reason);
}

void write_python_optimizer(const fs::path& directory, const nn::ParameterLayout& layout,
                            const TrainedArenas& arenas, const OptimizationState& state) {
  const auto groups = groups_to_write(directory, layout, state);
  const ParameterOrder order = names_of(groups);
  const StepCount count = step_count_of(state.optimizer.name);
  // A tensor for each parameter: Python's optimizers count in place.
  const std::vector<float> steps(order.size(), static_cast<float>(state.step));
  std::unordered_map<std::string_view, std::size_t> numbers;
  std::vector<TorchItem::Dict> entries(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    numbers[order[i]] = i;
    if (count == StepCount::kInt) entries[i].set("step", state.step);
    if (count == StepCount::kTensor) {
      entries[i].set("step",
                     formats::TensorView{
                         "step", formats::DType::kF32, {}, std::as_bytes(std::span(&steps[i], 1))});
    }
  }
  for (const optim::StateTensor& tensor : arenas.state_tensors) {
    const auto [key, parameter] = split_name(tensor.name);
    entries[numbers.at(parameter)].set(
        std::string(key), formats::TensorView{tensor.name, formats::DType::kF32, tensor.shape,
                                              std::as_bytes(arenas.optimizer_state.subspan(
                                                  tensor.offset, tensor.size))});
  }
  TorchItem::Dict states;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (state.optimizer.name == OptimizerName::kAdafactor) entries[i].set("RMS", 0.0);
    if (!entries[i].entries.empty())
      states.set(static_cast<std::int64_t>(i), TorchItem{std::move(entries[i])});
  }
  TorchItem::List items;
  std::size_t first = 0;
  for (const optim::ParameterGroup& group : groups) {
    items.elements.push_back(group_item(state, group, first));
    first += group.parameters.size();
  }
  TorchItem::Dict root;
  root.set("state", std::move(states));
  root.set("param_groups", std::move(items));
  formats::write_torch_file(directory / kOptimizerFile, {std::move(root)});
}

void write_python_schedule(const fs::path& directory, const nn::ParameterLayout& layout,
                           const OptimizationState& state) {
  const auto groups = groups_to_write(directory, layout, state);
  const auto of_groups = [&](FunctionRef<TorchItem(double rate_factor)> item) {
    TorchItem::List list;
    for (const optim::ParameterGroup& group : groups)
      list.elements.push_back(item(group.rate_factor));
    return list;
  };
  const auto rates = [&](double rate) {
    return of_groups([&](double factor) { return TorchItem{rate * factor}; });
  };
  TorchItem::Dict root;
  if (state.metric_schedule) {
    set_metric_schedule(*state.metric_schedule, root);
  } else {
    root.set("base_lrs", rates(state.peak_learning_rate));
    root.set("last_epoch", state.step);
    root.set("_step_count", state.step + 1);
    root.set("_is_initial", false);
    root.set("_get_lr_called_within_step", false);
  }
  root.set("_last_lr", rates(state.next_learning_rate));
  if (!state.metric_schedule)
    root.set("lr_lambdas", of_groups([](double) { return TorchItem{TorchItem::Dict()}; }));
  formats::write_torch_file(directory / kSchedulerFile, {std::move(root)});
}

}  // namespace tandem::trainer
