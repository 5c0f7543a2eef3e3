// --accelerator_config: the settings of accelerate that transformers passes on, a dictionary.
#pragma once

#include <string>
#include <vector>

#include "apps/arguments/flags.h"

namespace tandem::apps {

// A binding whose `get` shows the keys that work here. It has no `set`: the values of a dictionary
// are applied when all flags are known, by the function below.
Binding accelerator_config_binding();

// Sets split_batches, even_batches and gradient_accumulation_steps (of
// gradient_accumulation_kwargs.num_steps) to the values of `config`, and adds a line to `notes` for
// each other key that asks for something. Throws ConfigError for unknown keys, as transformers
// does, for values of the wrong type, for use_seedable_sampler false, and when both
// --gradient_accumulation_steps and num_steps are given.
void apply_accelerator_config(const Json& config, trainer::TrainingArguments& training,
                              std::vector<std::string>& notes);

}  // namespace tandem::apps
