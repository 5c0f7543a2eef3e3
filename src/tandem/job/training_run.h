// Objects that all phases of a job share, once everything is loaded and planned. run() (job.h)
// makes it; it does not change afterwards. In an elastic job it outlives the views.
#pragma once

#include <chrono>
#include <cstddef>

#include "tandem/job/job.h"
#include "tandem/job/machine.h"
#include "tandem/job/model.h"
#include "tandem/job/settings.h"

namespace tandem::job {

struct TrainingRun {
  const Request& request;
  Settings& settings;
  tasks::JobTask& task;
  const Model& model;
  Weights& weights;
  const Machine& machine;
  const Process& process;
  std::size_t planned_memory;
  std::chrono::system_clock::time_point started;
};

}  // namespace tandem::job
