#include "tandem/job/agreed_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/own_program.h"
#include "tandem/core/text_layout.h"
#include "tandem/hub/file_hash.h"
#include "tandem/models/pretrained/weight_files.h"

namespace tandem::job {
namespace {

constexpr std::size_t kMostValue = 160;
constexpr std::size_t kMostLines = 32000;

std::string sha256_of_weights(const std::filesystem::path& directory) {
  const models::WeightFiles file(directory);
  std::string sums;
  for (const formats::TensorView& tensor : file.tensors())
    sums += fmt::format("{} {}\n", tensor.name, hub::sha256(tensor.bytes));
  return hub::sha256(std::as_bytes(std::span(sums)));
}

}  // namespace

std::string describe_inputs(const tasks::JobTask& task, const Model& model) {
  const std::filesystem::path program = own_binary();
  std::string text = fmt::format("program=tandem {} {}\n", TANDEM_VERSION,
                                 program.empty() ? "of an unknown build" : hub::sha256_of(program));
  const auto keys = nlohmann::json::parse(task.model_config().to_json(task.architecture()));
  for (const auto& [key, value] : keys.items()) {
    if (key == "_name_or_path") continue;  // a name, which may be a local folder
    text += fmt::format("config.json {}={}\n", key, value.dump());
  }
  const auto add_data = [&](const char* name, const std::string& fingerprint) {
    if (!fingerprint.empty()) text += fmt::format("{}={}\n", name, fingerprint);
  };
  add_data("training data", model.fingerprint);
  add_data("validation data", task.evaluation_fingerprint(tasks::Split::kEval));
  add_data("test data", task.evaluation_fingerprint(tasks::Split::kPredict));
  if (model.files.is_int8())
    add_data("weights in int8", sha256_of_weights(model.files.directory()));
  return text;
}

std::string shortened(std::string_view lines) {
  std::string text;
  while (!lines.empty()) {
    std::string line(lines.substr(0, lines.find('\n')));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const std::size_t value = line.find('=') + 1;  // 0: it has no name
    if (line.size() - value > kMostValue) {
      const std::string hash = hub::sha256(std::as_bytes(std::span(line)));
      line = fmt::format("{} (SHA-256 {})", keep_begin(line, value + kMostValue / 2), hash);
    }
    if (text.size() + line.size() + 1 > kMostLines) break;
    text += line + '\n';
  }
  return text;
}

}  // namespace tandem::job
