// Adapters of a job: its flags, or the adapter that it continues, as the model's LoraConfig.
#pragma once

#include <filesystem>

#include "tandem/hub/model_files.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::job {

// `config` with its `lora` if --use_peft is given. With an adapter as --model_name_or_path its file
// decides instead of the flags. Throws ConfigError, DataError, IoError.
models::ModelConfig with_adapters(models::ModelConfig config, const Arguments& arguments,
                                  const hub::ModelLocation& location, Console& console);

// Throws ConfigError if the job resumes from a checkpoint whose adapter is not that of `config`:
// another rank or scale, other modules. A directory without an adapter passes.
void require_same_adapter(const models::ModelConfig& config, const nn::ParameterLayout& layout,
                          const std::filesystem::path& checkpoint);

}  // namespace tandem::job
