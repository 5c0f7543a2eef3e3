// The last lines of a job: the files it wrote, and the commands that use them.
#pragma once

#include "tandem/job/training_run.h"

namespace tandem::job {

// For the main process, after all files are written.
void print_closing_report(const TrainingRun& run);

}  // namespace tandem::job
