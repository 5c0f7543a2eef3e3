// Completes the arguments of a job: Hugging Face's values for flags that were not given. Refuses
// flags that contradict each other.
#pragma once

#include <string>
#include <vector>

#include "tandem/job/arguments.h"
#include "tandem/tasks/task_arguments.h"

namespace tandem::apps {

// Fills in, by Hugging Face's rules, do_eval, eval_steps, disable_tqdm, metric_for_best_model and
// greater_is_better, and normalises report_to, save_total_limit and bf16; a line in `notes` for
// each default that was filled in and each value that changes nothing. Reads no file. Throws
// ConfigError for contradictions and for data that would be needed and are not named.
void complete_arguments(job::Arguments& arguments, tasks::TaskArguments& task,
                        std::vector<std::string>& notes);

}  // namespace tandem::apps
