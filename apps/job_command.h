// A job as a process: what surrounds job::run() in every `tandem run_…` command. Signals, the
// console, exit codes.
#pragma once

#include <span>

#include "tandem/core/env.h"
#include "tandem/job/arguments.h"
#include "tandem/models/family.h"
#include "tandem/tasks/job_task.h"

namespace tandem::apps {

// Runs the job that was asked for and returns the process's exit code: 0; 1 when no int8 model is
// good enough; 128 + the signal that stopped it. `families`: those that a model may be of. Errors
// are thrown after the other ranks have been told.
int run_job(const job::Request& request, tasks::JobTask& task, const Environment& environment,
            std::span<const models::Family* const> families = models::families());

}  // namespace tandem::apps
