// A job in the views of an elastic job: its weights and progress outlive each of them.
#pragma once

#include "tandem/job/training_run.h"
#include "tandem/job/world.h"

namespace tandem::job {

// Computes until the job is over: the end of one view begins the next.
Outcome compute_in_views(const TrainingRun& run, const ElasticWorker& worker);

}  // namespace tandem::job
