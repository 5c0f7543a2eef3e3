// The entries of config.json about a model's labels and about the task that it was trained for.
#pragma once

#include <span>
#include <string>

#include "tandem/models/encoder/model_config.h"

namespace tandem::tasks {

// LABEL_0, LABEL_1 …: what transformers calls the labels of a model that names none.
bool are_default_names(std::span<const std::string> names);

// Sets finetuning_task, a key that transformers' scripts write and no program reads; empty: removes
// it.
void set_finetuning_task(models::ModelConfig& config, const std::string& task);

}  // namespace tandem::tasks
