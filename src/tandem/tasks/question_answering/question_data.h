// The questions of a job: from flags to files, from files to features.
#pragma once

#include "tandem/tasks/job_task.h"
#include "tandem/tasks/question_answering/features.h"
#include "tandem/tasks/question_answering/qa_arguments.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/text/tokenizer.h"

namespace tandem::question_answering {

// Reads what the stages need, makes features or finds them in the cache (feature_cache.h), says
// what they are, and gives them to the task. `tokenizer` is the one of the parts' directory.
// Features are made by --preprocessing_num_workers threads, else by those of the parts.
void load_questions(const tasks::QaArguments& data, const text::Tokenizer& tokenizer,
                    const tasks::DataParts& parts, QuestionAnsweringTask& task);

}  // namespace tandem::question_answering
