// The flag tables. model_flags and training_flags belong to every task; a task adds the flags of
// its data.
#pragma once

#include "apps/arguments/flag.h"

namespace tandem::apps {

FlagTable model_flags();               // hub::ModelArguments
FlagTable question_answering_flags();  // tasks::QaArguments
FlagTable training_flags();            // trainer::TrainingArguments, machine_flags() among them
FlagTable machine_flags();             // of numbers, devices, ranks and the Hub
FlagTable quantization_flags();        // of optimum-intel's run_qa.py

// Everything that run_qa accepts.
FlagTable run_qa_flags();

}  // namespace tandem::apps
