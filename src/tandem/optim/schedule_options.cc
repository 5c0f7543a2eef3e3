// --lr_scheduler_kwargs: which keys a schedule takes, and their values.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/optim/schedule.h"

namespace tandem::optim {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kRampNames = {"linear", "cosine", "1-sqrt"};
constexpr std::array<std::string_view, 2> kModes = {"min", "max"};
constexpr std::array<std::string_view, 2> kThresholdModes = {"rel", "abs"};

// The given settings, taken out one by one. A setting that is left in the end is unknown.
class Settings {
 public:
  Settings(ScheduleType type, const json& kwargs) : type_(type), left_(kwargs) {
    if (left_.is_null()) left_ = json::object();
    if (!left_.is_object()) {
      raise<ConfigError>("--lr_scheduler_kwargs: expected a JSON object, found {}", kwargs.dump());
    }
  }

  bool number(const char* key, double& value, double min, double max) {
    const auto found = take(key);
    if (!found) return false;
    double parsed = 0;
    if (found->is_number()) {
      parsed = found->get<double>();
    } else if (!found->is_string() || !parse(found->get_ref<const std::string&>(), parsed)) {
      bad(key, *found, "a number");
    }
    if (!(parsed >= min && parsed <= max)) {
      bad(key, *found,
          max < 1e300 ? fmt::format("a number from {} to {}", min, max)
                      : fmt::format("a number of at least {}", min));
    }
    value = parsed;
    return true;
  }
  void number(const char* key, std::optional<double>& value, double min) {
    double parsed = 0;
    if (number(key, parsed, min, 1e308)) value = parsed;
  }
  bool count(const char* key, std::uint64_t& value) {
    double parsed = 0;
    if (!number(key, parsed, 0, 9e15)) return false;
    if (parsed != std::floor(parsed)) {
      raise<ConfigError>("--lr_scheduler_kwargs: {} is {}, expected a whole number", key, parsed);
    }
    value = static_cast<std::uint64_t>(parsed);
    return true;
  }
  void count(const char* key, std::optional<std::uint64_t>& value) {
    std::uint64_t parsed = 0;
    if (count(key, parsed)) value = parsed;
  }
  void flag(const char* key, bool& value) {
    const auto found = take(key);
    if (!found) return;
    if (!found->is_boolean()) bad(key, *found, "true or false");
    value = found->get<bool>();
  }
  template <std::size_t N>
  std::optional<std::size_t> choice(const char* key, const std::array<std::string_view, N>& names) {
    const auto found = take(key);
    if (!found) return std::nullopt;
    const auto text = found->is_string() ? found->get<std::string>() : std::string();
    const auto at = std::find(names.begin(), names.end(), text);
    if (at == names.end()) bad(key, *found, fmt::format("one of {}", fmt::join(names, ", ")));
    return static_cast<std::size_t>(at - names.begin());
  }
  void ramp(const char* key, Ramp& value) {
    if (const auto index = choice(key, kRampNames)) value = static_cast<Ramp>(*index);
  }

  void require_empty() const {
    if (left_.empty()) return;
    raise<ConfigError>(
        "--lr_scheduler_kwargs: {} does not know '{}'{}", to_string(type_), left_.begin().key(),
        known_.empty() ? "; it has no settings"
                       : fmt::format("; its settings are {}", fmt::join(known_, ", ")));
  }

 private:
  std::optional<json> take(const char* key) {
    known_.emplace_back(key);
    const auto found = left_.find(key);
    if (found == left_.end()) return std::nullopt;
    json value = *found;
    left_.erase(found);
    if (value.is_null()) return std::nullopt;
    return value;
  }
  static bool parse(const std::string& text, double& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  }
  [[noreturn]] static void bad(const char* key, const json& found, const std::string& expected) {
    raise<ConfigError>("--lr_scheduler_kwargs: {} is {}, expected {}", key, found.dump(), expected);
  }

  ScheduleType type_;
  json left_;
  std::vector<std::string> known_;
};

void check_minimum(ScheduleType type, const ScheduleOptions& options) {
  if (options.min_lr.has_value() == options.min_lr_rate.has_value()) {
    raise<ConfigError>(
        "--lr_scheduler_type {}: give {} of min_lr and min_lr_rate in "
        "--lr_scheduler_kwargs, for example '{{\"min_lr_rate\": 0.1}}'",
        to_string(type), options.min_lr ? "only one" : "one");
  }
}

void read_polynomial(Settings& settings, double learning_rate, ScheduleOptions& options) {
  settings.number("lr_end", options.lr_end, 0, 1e308);
  settings.number("power", options.power, 0, 1e308);
  if (learning_rate <= options.lr_end) {
    raise<ConfigError>(
        "--lr_scheduler_type polynomial: lr_end {} must be smaller than --learning_rate {}",
        options.lr_end, learning_rate);
  }
}

void read_cosine_with_minimum(Settings& settings, ScheduleType type, ScheduleOptions& options) {
  settings.number("num_cycles", options.num_cycles, 0);
  settings.number("min_lr", options.min_lr, 0);
  settings.number("min_lr_rate", options.min_lr_rate, 0);
  if (type == ScheduleType::kCosineWarmupWithMinLr)
    settings.number("warmup_lr_rate", options.warmup_lr_rate, 0);
  settings.require_empty();
  check_minimum(type, options);
}

void read_warmup_stable_decay(Settings& settings, ScheduleOptions& options) {
  settings.count("num_decay_steps", options.num_decay_steps);
  settings.count("num_stable_steps", options.num_stable_steps);
  settings.ramp("warmup_type", options.warmup_type);
  settings.ramp("decay_type", options.decay_type);
  settings.number("min_lr_ratio", options.min_lr_ratio, 0, 1e308);
  settings.number("num_cycles", options.num_cycles, 0);
  settings.require_empty();
  if (!options.num_decay_steps) {
    raise<ConfigError>(
        "--lr_scheduler_type warmup_stable_decay needs num_decay_steps: pass "
        "--lr_scheduler_kwargs '{{\"num_decay_steps\": N}}'");
  }
}

// Options that both metric-driven schedules share.
template <class Options>
void read_metric_schedule(Settings& settings, Options& options, double least_factor) {
  if (const auto mode = settings.choice("mode", kModes)) options.greater_is_better = *mode == 1;
  settings.number("factor", options.factor, least_factor, 0.9999999999);
  settings.count("patience", options.patience);
  settings.number("threshold", options.threshold, 0, 1e308);
  if (const auto mode = settings.choice("threshold_mode", kThresholdModes))
    options.relative = *mode == 0;
  settings.count("cooldown", options.cooldown);
  settings.number("min_lr", options.min_lr, 0, 1e308);
  settings.number("eps", options.eps, 0, 1e308);
}

}  // namespace

ScheduleOptions parse_schedule_options(ScheduleType type, const json& kwargs,
                                       double learning_rate) {
  Settings settings(type, kwargs);
  ScheduleOptions options;
  switch (type) {
    case ScheduleType::kCosine:
    case ScheduleType::kCosineWithRestarts:
      settings.number("num_cycles", options.num_cycles, 0);
      break;
    case ScheduleType::kPolynomial:
      read_polynomial(settings, learning_rate, options);
      break;
    case ScheduleType::kInverseSqrt:
      settings.number("timescale", options.timescale, 1e-300);
      break;
    case ScheduleType::kCosineWithMinLr:
    case ScheduleType::kCosineWarmupWithMinLr:
      read_cosine_with_minimum(settings, type, options);
      break;
    case ScheduleType::kWarmupStableDecay:
      read_warmup_stable_decay(settings, options);
      break;
    default:
      break;
  }
  settings.require_empty();
  return options;
}

PlateauOptions parse_plateau_options(const json& kwargs) {
  Settings settings(ScheduleType::kReduceLrOnPlateau, kwargs);
  PlateauOptions options;
  read_metric_schedule(settings, options, 0);
  settings.require_empty();
  return options;
}

GreedyOptions parse_greedy_options(const json& kwargs) {
  Settings settings(ScheduleType::kGreedy, kwargs);
  GreedyOptions options;
  read_metric_schedule(settings, options, 1e-300);
  settings.count("warmup", options.warmup);
  settings.number("max_lr", options.max_lr, 0, 1e308);
  bool verbose = false;  // the log has the rate anyway
  settings.flag("verbose", verbose);
  settings.flag("smooth", options.smooth);
  settings.count("window_size", options.window_size);
  settings.count("reset_start", options.reset_start);
  settings.require_empty();
  if (options.window_size == 0)
    raise<ConfigError>("--lr_scheduler_kwargs: window_size is 0, expected a number of at least 1");
  return options;
}

}  // namespace tandem::optim
