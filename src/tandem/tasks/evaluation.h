// Result of an evaluation, for those who make or read it: task.h only names it.
#pragma once

#include <string>
#include <vector>

#include "tandem/core/json.h"

namespace tandem::tasks {

struct Evaluation {
  nlohmann::ordered_json metrics;  // {"exact_match": …} without prefix, in the metric's order;
                                   // empty when the split has no answers
  std::vector<std::string> warnings = {};
};

}  // namespace tandem::tasks
