// Result of an evaluation, for code that makes or reads it: task.h only names it.
#pragma once

#include <string>
#include <vector>

#include "tandem/core/json.h"
#include "tandem/tasks/ranking/csv_table.h"

namespace tandem::tasks {

struct Evaluation {
  nlohmann::ordered_json metrics;  // {"exact_match": …} without prefix, in the metric's order;
                                   // empty when the split has no answers
  std::vector<std::string> warnings = {};
  std::vector<ranking::CsvTable> tables = {};  // which get a row
};

}  // namespace tandem::tasks
