// Objects that all phases of a job share, from the loading of the weights on. run() (job.h) makes
// it. In an elastic job it outlives the views.
#pragma once

#include <chrono>
#include <cstddef>

#include "tandem/job/job.h"
#include "tandem/job/job_output.h"
#include "tandem/job/machine.h"
#include "tandem/job/model.h"

namespace tandem::job {

struct TrainingRun {
  const Request& request;
  tasks::JobTask& task;
  const Environment& environment;
  const Observers& observers;
  const StopRequests& stop;
  const trainer::TrainingArguments& training;  // the request's, as settle() has changed them
  PreparedOutput& output;
  const Machine& machine;
  const Model& model;
  Weights& weights;
  std::chrono::system_clock::time_point started;
  std::size_t planned_memory = 0;  // peak of this rank's node in bytes, once it is planned
};

}  // namespace tandem::job
