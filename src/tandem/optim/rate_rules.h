// Learning rates of their own for some parameters, as sentence-transformers' learning_rate_mapping
// and torch's param_groups have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/nn/parameter_layout.h"

namespace tandem::optim {

// For the trained parameters in whose names std::regex_search finds the pattern (ECMAScript).
struct RateRule {
  std::string pattern;
  double factor = 1;  // of OptimizerStep::learning_rate
};

// Reads --learning_rate_mapping, {"pattern": rate, …}; `learning_rate` has the factor 1. An empty
// text has no rules. Throws ConfigError for what is not an object, a rate that is not a number
// >= 0, a pattern that is not a regular expression, a learning_rate of 0.
std::vector<RateRule> parse_rate_rules(std::string_view text, double learning_rate);

// Parameters that torch keeps in one of its param_groups.
struct ParameterGroup {
  bool weight_decay = false;
  double rate_factor = 1;
  std::vector<const nn::ParameterSpec*> parameters = {};
};

// The groups in the order of torch: parameters that decay, the others, then for each rule those
// that decay and the others, without empty groups of rules. A parameter belongs to the last rule
// that finds it. Parameters that are not trainable are in no group, the others keep their order.
// Throws ConfigError for a rule that finds no trainable parameter.
std::vector<ParameterGroup> parameter_groups(
    const std::vector<const nn::ParameterSpec*>& parameters, const std::vector<RateRule>& rules);

}  // namespace tandem::optim
