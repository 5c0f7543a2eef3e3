// The flag tables that belong to every task; a task adds the flags of its data.
#pragma once

#include "tandem/flags/flag.h"
#include "tandem/hub/model_arguments.h"
#include "tandem/quant/quantization_arguments.h"
#include "tandem/tasks/task_arguments.h"
#include "tandem/trainer/enum_names.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::apps {

// The words of the tables.
using flags::accepted;
using flags::Alias;
using flags::ArgumentParts;
using flags::Binding;
using flags::Choice;
using flags::field;
using flags::Flag;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using flags::Json;
using flags::Kind;
using flags::note;
using flags::refused;
using flags::setter;
using flags::Verdict;

FlagTable model_flags();         // hub::ModelArguments
FlagTable training_flags();      // trainer::TrainingArguments, machine_flags() among them
FlagTable machine_flags();       // flags of numbers, devices, ranks and the Hub
FlagTable quantization_flags();  // flags of optimum-intel's run_qa.py
FlagTable lora_flags();          // job::LoraArguments

// Everything that the command of a task accepts. A row of the task replaces the shared row of its
// name, as --label_smoothing_factor of tasks that have labels.
FlagTable command_flags(const tasks::TaskArguments& task);

}  // namespace tandem::apps
