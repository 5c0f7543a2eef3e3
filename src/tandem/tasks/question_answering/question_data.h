// The questions of a job: from flags to files, from files to features.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "tandem/tasks/job_task.h"
#include "tandem/tasks/question_answering/features.h"
#include "tandem/tasks/question_answering/qa_arguments.h"
#include "tandem/tasks/question_answering/question_answering_task.h"

namespace tandem::question_answering {

// Names what features are made of in addition to the tokenizer: the contents of the files of
// questions and all options. Throws IoError.
std::string features_key(std::span<const std::filesystem::path> files,
                         const FeatureOptions& options);

// Reads what the stages need, makes features or finds them in the cache (tasks/feature_maker.h),
// prints what they are, and gives them to the task, whose tokenizer is the one of the parts'
// directory. Features are made by --preprocessing_num_workers threads, else by those of the parts.
void load_questions(const tasks::QaArguments& data, const tasks::DataParts& parts,
                    QuestionAnsweringTask& task);

}  // namespace tandem::question_answering
