// Arguments that a run continues a checkpoint with although it was written with others.
#pragma once

#include <filesystem>
#include <string>

#include "tandem/trainer/trainer_state.h"
#include "tandem/trainer/training_arguments.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::trainer {

// A warning in transformers' words (compare_trainer_and_checkpoint_args), or nothing: the intervals
// of `saved`, the checkpoint's trainer_state.json, and, where Hugging Face's Trainer left a
// training_args.bin, the settings that decide the order of later data: accumulation, seeds, dropped
// tails, grouping.
// The run keeps its own settings in each case, as at Hugging Face. The file is only looked through
// (formats/torch_pickle.h); what is wrong with it becomes part of the text. Throws nothing for it.
std::string resume_differences(const std::filesystem::path& checkpoint, const TrainerState& saved,
                               const TrainingPlan& plan, const TrainingArguments& arguments);

}  // namespace tandem::trainer
