#include "apps/arguments/accelerator_config.h"

#include <algorithm>
#include <span>

#include "tandem/flags/suggest.h"

namespace tandem::apps {
namespace {

constexpr const char* kEvenBatches = "even_batches";
constexpr const char* kSplitBatches = "split_batches";
constexpr const char* kSampler = "use_seedable_sampler";
constexpr const char* kAccumulation = "gradient_accumulation_kwargs";
constexpr const char* kNumSteps = "num_steps";

// A key of AcceleratorConfig, or of the dictionary in it. `reason` states why it changes nothing
// when its truth value is another than the default; empty: it works, or is treated apart.
struct Key {
  std::string_view name;
  bool initial;
  std::string_view reason;
};

constexpr Key kKeys[] = {
    {kSplitBatches, false, ""},
    {kEvenBatches, true, ""},
    {kSampler, true, ""},
    {kAccumulation, false, ""},
    {"dispatch_batches", false, "every rank reads its own batches"},
    {"non_blocking", false, "there is no other device to copy to"},
    {"use_configured_state", false, "there is no state to configure before"},
};

constexpr Key kAccumulationKeys[] = {
    {kNumSteps, false, ""},
    {"adjust_scheduler", true, "schedules count updates, not micro-batches"},
    {"sync_with_dataloader", true, "an epoch always ends with an update"},
    {"sync_each_batch", false, "gradients travel once per update"},
};

// true, false, 1 or 0; null is the default, as in Python's dataclass.
bool truth_value(const Json& value, const Key& key) {
  if (value.is_null()) return key.initial;
  if (value.is_boolean()) return value.get<bool>();
  if (value == Json(0) || value == Json(1)) return value == Json(1);
  throw ConfigError(fmt::format("argument --accelerator_config: {} {}: expected true or false",
                                key.name, value.dump()),
                    /*usage=*/true);
}

[[noreturn]] void unknown_key(const std::string& name, std::span<const Key> keys) {
  std::vector<std::string> known;
  for (const Key& key : keys) known.emplace_back(key.name);
  const auto suggestion = flags::nearest(name, known);
  throw ConfigError(
      fmt::format("argument --accelerator_config: unknown key '{}'{}; its keys are {}", name,
                  suggestion ? fmt::format(" (did you mean {}?)", *suggestion) : "",
                  fmt::join(known, ", ")),
      /*usage=*/true);
}

// Throws for keys that are not among `keys`; a note for each that asks for something it cannot
// change.
void rule_keys(const Json& config, std::span<const Key> keys, std::vector<std::string>& notes) {
  for (const auto& [name, value] : config.items()) {
    const std::string& wanted = name;
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == wanted; });
    if (key == keys.end()) unknown_key(name, keys);
    if (!key->reason.empty() && truth_value(value, *key) != key->initial) {
      notes.push_back(fmt::format("--accelerator_config: {} has no effect: {}", name, key->reason));
    }
  }
}

void apply_truth_value(const Json& config, std::string_view name, bool& field) {
  const auto found = config.find(name);
  if (found == config.end()) return;
  const auto* key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                 [&](const Key& k) { return k.name == name; });
  field = truth_value(*found, *key);
}

void apply_accumulation(const Json& kwargs, trainer::TrainingArguments& training,
                        std::vector<std::string>& notes) {
  if (kwargs.is_null()) return;
  if (!kwargs.is_object()) {
    throw ConfigError(fmt::format("argument --accelerator_config: {} {}: expected a JSON object",
                                  kAccumulation, kwargs.dump()),
                      /*usage=*/true);
  }
  rule_keys(kwargs, kAccumulationKeys, notes);
  if (!kwargs.contains(kNumSteps) || kwargs[kNumSteps].is_null()) return;
  const Json& steps = kwargs[kNumSteps];
  if (!steps.is_number_integer() || steps < 1 || steps > 2147483647) {
    throw ConfigError(
        fmt::format("argument --accelerator_config: {} {}: expected a whole number above 0",
                    kNumSteps, steps.dump()),
        /*usage=*/true);
  }
  if (training.gradient_accumulation_steps > 1) {
    raise<ConfigError>(
        "--accelerator_config: {} {} and --gradient_accumulation_steps {} both set how many "
        "micro-batches an update has; give one of them",
        kNumSteps, steps.dump(), training.gradient_accumulation_steps);
  }
  training.gradient_accumulation_steps = steps.get<int>();
}

}  // namespace

Binding accelerator_config_binding() {
  Binding binding;
  binding.kind = Kind::kDict;
  binding.get = [](const ArgumentParts& parts) {
    return Json{{kEvenBatches, parts.get<trainer::TrainingArguments>().even_batches},
                {kSplitBatches, parts.get<trainer::TrainingArguments>().split_batches}};
  };
  binding.initial = flags::initial_of<trainer::TrainingArguments>(binding);
  return binding;
}

void apply_accelerator_config(const Json& config, trainer::TrainingArguments& training,
                              std::vector<std::string>& notes) {
  rule_keys(config, kKeys, notes);
  bool seedable_sampler = true;
  apply_truth_value(config, kSampler, seedable_sampler);
  if (!seedable_sampler) {
    raise<ConfigError>(
        "--accelerator_config: {} false is not supported: in one process the order would depend on "
        "how many of PyTorch's global random numbers were drawn before; leave it at true",
        kSampler);
  }
  apply_truth_value(config, kEvenBatches, training.even_batches);
  apply_truth_value(config, kSplitBatches, training.split_batches);
  if (const auto kwargs = config.find(kAccumulation); kwargs != config.end())
    apply_accumulation(*kwargs, training, notes);
}

}  // namespace tandem::apps
