// The stages of a job that compute: train, evaluate, predict, save, report.
#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/job/elastic.h"
#include "tandem/job/run_reports.h"
#include "tandem/job/training_run.h"

namespace tandem::job {

// Runs the trainer and the stages with the ranks of `communicator`. `progress`: where an elastic
// job continues.
Outcome compute(const TrainingRun& run, comm::Communicator& communicator,
                dist::GradientEngine& gradients, RunReports& reports, JobCallbacks& callbacks,
                const Progress& progress = {});

}  // namespace tandem::job
