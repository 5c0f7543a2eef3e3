// A job in the views of an elastic job: its weights and progress outlive each of them.
#pragma once

#include "tandem/job/training_run.h"
#include "tandem/job/world.h"

namespace tandem::job {

// Computes until the job is over: the end of one view begins the next. `alone`: this worker, with
// its channel to the agent.
Outcome compute_in_views(const TrainingRun& run, const World& alone);

}  // namespace tandem::job
