// Adapters of a job: its flags, or the adapter that it continues, as the model's LoraConfig.
#pragma once

#include "tandem/hub/model_files.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/models/encoder/model_config.h"

namespace tandem::job {

// `config` with its `lora` if --use_peft is given. With an adapter as --model_name_or_path its file
// decides instead of the flags. Throws ConfigError, DataError, IoError.
models::ModelConfig with_adapters(models::ModelConfig config, const Arguments& arguments,
                                  const hub::ModelLocation& location, Console& console);

}  // namespace tandem::job
