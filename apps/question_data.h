// The questions of a job: from flags to files, from files to features.
#pragma once

#include "apps/arguments/run_qa_arguments.h"
#include "apps/console.h"
#include "tandem/core/env.h"
#include "tandem/core/thread_pool.h"
#include "tandem/hub/dataset_files.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/text/tokenizer.h"

namespace tandem::apps {

question_answering::Padding padding_of(const tasks::QaArguments& data);

// The files of --dataset_name, else those of --train_file and its siblings. Throws ConfigError when a
// part that the job needs is not there, and what hub::resolve_dataset() throws.
hub::DatasetFiles resolve_questions(const RunQaArguments& arguments,
                                    const Environment& environment);

// Reads what the job needs, makes features, says what they are, and gives them to the task.
void load_questions(const RunQaArguments& arguments, const hub::DatasetFiles& files,
                    const text::Tokenizer& tokenizer, ThreadPool& threads, Console& console,
                    question_answering::QuestionAnsweringTask& task);

}  // namespace tandem::apps
