#include "tandem/tasks/label_config.h"

#include <fmt/format.h>

#include "tandem/core/json.h"

namespace tandem::tasks {

bool are_default_names(std::span<const std::string> names) {
  for (std::size_t id = 0; id < names.size(); ++id) {
    if (names[id] != fmt::format("LABEL_{}", id)) return false;
  }
  return true;
}

void set_finetuning_task(models::ModelConfig& config, const std::string& task) {
  auto json = parse_ordered_json(config.source);
  if (task.empty()) {
    json.erase("finetuning_task");
  } else {
    json["finetuning_task"] = task;
  }
  config.source = json.dump();
}

}  // namespace tandem::tasks
