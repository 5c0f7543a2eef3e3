#include "tandem/optim/rate_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::optim {
namespace {

constexpr const char* kFlag = "--learning_rate_mapping";

std::regex compiled(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    raise<ConfigError>("{}: '{}' is not a regular expression ({})", kFlag, pattern, error.what());
  }
}

double rate_of(const std::string& pattern, const nlohmann::ordered_json& value) {
  const double rate = value.is_number() ? value.get<double>() : -1;
  if (std::isfinite(rate) && rate >= 0) return rate;
  raise<ConfigError>("{}: '{}' has {}, expected a learning rate >= 0", kFlag, pattern,
                     value.dump());
}

[[noreturn]] void found_nothing(const RateRule& rule,
                                const std::vector<const nn::ParameterSpec*>& parameters) {
  const auto trained =
      std::ranges::find_if(parameters, [](const auto* one) { return one->trainable; });
  raise<ConfigError>("{}: '{}' matches no trained parameter; expected a part of a name such as {}",
                     kFlag, rule.pattern, trained == parameters.end() ? "none" : (*trained)->name);
}

}  // namespace

std::vector<RateRule> parse_rate_rules(std::string_view text, double learning_rate) {
  std::vector<RateRule> rules;
  if (text.empty()) return rules;
  const auto mapping = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!mapping.is_object()) {
    raise<ConfigError>("{} is {}, expected an object such as {{\"embeddings\": 1e-5}}", kFlag,
                       text);
  }
  if (!mapping.empty() && learning_rate == 0)
    raise<ConfigError>("{}: --learning_rate is 0, expected the peak of the schedule above 0",
                       kFlag);
  for (const auto& [pattern, value] : mapping.items()) {
    compiled(pattern);
    rules.push_back({pattern, rate_of(pattern, value) / learning_rate});
  }
  return rules;
}

std::vector<ParameterGroup> parameter_groups(
    const std::vector<const nn::ParameterSpec*>& parameters, const std::vector<RateRule>& rules) {
  std::vector<ParameterGroup> all = {{.weight_decay = true}, {.weight_decay = false}};
  std::vector<std::regex> patterns;
  for (const RateRule& rule : rules) {
    patterns.push_back(compiled(rule.pattern));
    all.push_back({.weight_decay = true, .rate_factor = rule.factor});
    all.push_back({.weight_decay = false, .rate_factor = rule.factor});
  }
  std::vector<bool> found(rules.size());
  for (const nn::ParameterSpec* parameter : parameters) {
    if (!parameter->trainable) continue;
    std::size_t pair = 0;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (!std::regex_search(parameter->name, patterns[i])) continue;
      found[i] = true;
      pair = i + 1;
    }
    all[2 * pair + (parameter->weight_decay ? 0 : 1)].parameters.push_back(parameter);
  }
  for (std::size_t i = 0; i < rules.size(); ++i)
    if (!found[i]) found_nothing(rules[i], parameters);
  std::vector<ParameterGroup> groups;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i < 2 || !all[i].parameters.empty()) groups.push_back(std::move(all[i]));
  return groups;
}

}  // namespace tandem::optim
