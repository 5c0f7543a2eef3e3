#include "tandem/job/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/models/encoder/lora_config.h"
#include "tandem/models/pretrained/adapter_files.h"

namespace tandem::job {
namespace {

// The output layers of transformers' classes, which PEFT trains whole.
constexpr const char* kHeads[] = {"classifier", "score", "qa_outputs"};

models::LoraConfig config_of_flags(const Arguments& arguments) {
  const LoraArguments& flags = arguments.lora;
  models::LoraConfig lora;
  lora.r = static_cast<std::size_t>(flags.lora_r);
  lora.lora_alpha = flags.lora_alpha;
  lora.lora_dropout = flags.lora_dropout;
  lora.use_rslora = flags.use_rslora;
  lora.target_modules = models::ModuleNames::parse(flags.lora_target_modules);
  lora.modules_to_save = flags.lora_modules_to_save;
  lora.modules_to_save.insert(lora.modules_to_save.end(), std::begin(kHeads), std::end(kHeads));
  lora.base_model_name_or_path = arguments.model.model_name_or_path;
  if (arguments.model.model_revision != hub::ModelArguments{}.model_revision)
    lora.revision = arguments.model.model_revision;
  return lora;
}

}  // namespace

models::ModelConfig with_adapters(models::ModelConfig config, const Arguments& arguments,
                                  const hub::ModelLocation& location, Console& console) {
  if (!arguments.lora.use_peft) return config;
  if (location.model.directory.empty()) {
    raise<ConfigError>(
        "--use_peft: found a new model, expected a trained one to freeze; pass "
        "--model_name_or_path");
  }
  const bool continues = !location.adapter.empty();
  models::LoraConfig lora =
      continues ? models::LoraConfig::load(location.adapter) : config_of_flags(arguments);
  if (continues) {
    console.fact("adapter", fmt::format("continues {}, whose configuration replaces --lora_*",
                                        location.adapter.native()));
  }
  lora.base_tensors = models::parameter_names(location.model.directory, config);
  config.lora = std::make_shared<const models::LoraConfig>(std::move(lora));
  return config;
}

void require_same_adapter(const models::ModelConfig& config, const nn::ParameterLayout& layout,
                          const std::filesystem::path& checkpoint) {
  if (!config.lora || !models::is_adapter_directory(checkpoint)) return;
  const std::vector<std::string> differences =
      models::adapter_differences(checkpoint, *config.lora, layout);
  if (differences.empty()) return;
  raise<ConfigError>(
      "cannot resume from {}: its adapter is another: {}; pass the --lora_* flags of the run that "
      "wrote it, or start a new run with it as --model_name_or_path",
      checkpoint.native(), fmt::join(differences, "; "));
}

}  // namespace tandem::job
