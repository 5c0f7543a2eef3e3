// The questions of a job: from flags to files, from files to features.
#pragma once

#include "apps/arguments/run_qa_arguments.h"
#include "apps/console.h"
#include "tandem/core/env.h"
#include "tandem/core/thread_pool.h"
#include "tandem/hub/dataset_files.h"
#include "tandem/hub/download_observer.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/text/tokenizer.h"

namespace tandem::apps {

question_answering::Padding padding_of(const tasks::QaArguments& data);

// The files of --dataset_name, else those of --train_file and its siblings. Throws ConfigError when
// a part that the job needs is not there, and what hub::resolve_dataset() throws.
hub::DatasetFiles resolve_questions(const RunQaArguments& arguments, const Environment& environment,
                                    hub::DownloadObserver& downloads);

// Reads what the job needs, makes features or finds them in the cache (feature_cache.h), says what
// they are, and gives them to the task. `tokenizer` is the one of `tokenizer_directory`. Features
// are made by --preprocessing_num_workers threads, else by `threads`.
void load_questions(const RunQaArguments& arguments, const hub::DatasetFiles& files,
                    const std::filesystem::path& tokenizer_directory,
                    const text::Tokenizer& tokenizer, const Environment& environment,
                    ThreadPool& threads, Console& console,
                    question_answering::QuestionAnsweringTask& task);

}  // namespace tandem::apps
