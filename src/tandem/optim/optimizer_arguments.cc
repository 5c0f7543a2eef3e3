// --optim_args: "key=value,key=value".
#include <algorithm>
#include <charconv>
#include <string>

#include "tandem/core/error.h"
#include "tandem/optim/optimizer.h"

namespace tandem::optim {
namespace {

// One thing that can be set; `flag` for truth values, else `number`.
struct Setting {
  OptimizerName optimizer;
  std::string_view key;
  double OptimizerOptions::*number = nullptr;
  bool OptimizerOptions::*flag = nullptr;
};

constexpr Setting kSettings[] = {
    {OptimizerName::kSgd, "momentum", &OptimizerOptions::momentum},
    {OptimizerName::kSgd, "dampening", &OptimizerOptions::dampening},
    {OptimizerName::kSgd, "nesterov", nullptr, &OptimizerOptions::nesterov},
    {OptimizerName::kAdagrad, "lr_decay", &OptimizerOptions::adagrad_lr_decay},
    {OptimizerName::kAdagrad, "eps", &OptimizerOptions::adagrad_epsilon},
    {OptimizerName::kAdagrad, "initial_accumulator_value",
     &OptimizerOptions::initial_accumulator_value},
    {OptimizerName::kAdafactor, "clip_threshold", &OptimizerOptions::clip_threshold},
    {OptimizerName::kAdafactor, "decay_rate", &OptimizerOptions::decay_rate},
};

std::string keys_of(OptimizerName optimizer) {
  std::string keys;
  for (const Setting& setting : kSettings) {
    if (setting.optimizer == optimizer)
      keys += (keys.empty() ? "" : ", ") + std::string(setting.key);
  }
  return keys;
}

[[noreturn]] void unknown_key(OptimizerName optimizer, std::string_view key) {
  const std::string keys = keys_of(optimizer);
  raise<ConfigError>("--optim_args: {} has no setting '{}'; {}", to_string(optimizer), key,
                     keys.empty() ? "--adam_beta1, --adam_beta2 and --adam_epsilon are its settings"
                                  : "it has " + keys);
}

void set(OptimizerOptions& options, std::string_view key, std::string_view value) {
  const auto setting = std::find_if(
      std::begin(kSettings), std::end(kSettings),
      [&](const Setting& one) { return one.optimizer == options.name && one.key == key; });
  if (setting == std::end(kSettings)) unknown_key(options.name, key);
  if (setting->flag != nullptr) {
    const bool yes = value == "True" || value == "true" || value == "1";
    if (!yes && value != "False" && value != "false" && value != "0")
      raise<ConfigError>("--optim_args: {} is '{}', expected True or False", key, value);
    options.*setting->flag = yes;
    return;
  }
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size())
    raise<ConfigError>("--optim_args: {} is '{}', expected a number", key, value);
  options.*setting->number = number;
}

}  // namespace

void parse_optimizer_arguments(std::string_view text, OptimizerOptions& options) {
  std::string compact(text);
  std::erase(compact, ' ');
  std::string_view rest = compact;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      raise<ConfigError>("--optim_args: '{}' is not of the form key=value", one);
    }
    set(options, one.substr(0, equals), one.substr(equals + 1));
  }
}

}  // namespace tandem::optim
