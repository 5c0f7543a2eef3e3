#include "tandem/job/agreed_inputs.h"

#include <fmt/format.h>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/hub/file_hash.h"

namespace tandem::job {

std::string describe_inputs(const tasks::JobTask& task, const std::string& train_fingerprint) {
  const MappedFile program("/proc/self/exe");
  std::string text =
      fmt::format("program=tandem {} {}\n", TANDEM_VERSION, hub::sha256(program.bytes()));
  const auto keys = nlohmann::json::parse(task.model_config().to_json(task.architecture()));
  for (const auto& [key, value] : keys.items()) {
    if (key == "_name_or_path") continue;  // a name, which may be a local folder
    text += fmt::format("config.json {}={}\n", key, value.dump());
  }
  const auto add_data = [&](const char* name, const std::string& fingerprint) {
    if (!fingerprint.empty()) text += fmt::format("{}={}\n", name, fingerprint);
  };
  add_data("training data", train_fingerprint);
  add_data("validation data", task.evaluation_fingerprint(tasks::Split::kEval));
  add_data("test data", task.evaluation_fingerprint(tasks::Split::kPredict));
  return text;
}

}  // namespace tandem::job
