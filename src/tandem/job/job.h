// A job of any task, in phases: world → kernels → model → data → train → evaluate → predict → save
// → report. The calling program parses the command line, shows the output and ends the process.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "tandem/core/env.h"
#include "tandem/hub/download_observer.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/job/world.h"
#include "tandem/tasks/job_task.h"

namespace tandem::job {

// Requests to stop the process.
struct StopRequests {
  const std::atomic<bool>&
      requested;  // once true, training ends after the step, or during an evaluation between two
                  // batches, and a checkpoint
  // While the returned object lives, a first request waits for the trainer.
  std::function<std::shared_ptr<void>()> during_training;
  std::function<std::string()> name;  // name of the received request: "SIGTERM"
};

struct Observers {
  Console& console;
  hub::DownloadObserver& downloads;
  // Observers of training besides the console; the second only while this is the main process.
  trainer::Observer& watcher;
  trainer::Observer& main_watcher;
};

enum class Outcome {
  kDone,
  kRejected,  // no int8 model is good enough, or the saved one differs; the console has the reason
  kStopped,   // on request, in training, after a checkpoint
};

// Runs the job `request`. Collective over the ranks of `world`; every rank returns the same. Throws
// tandem::Error, and Interrupted if a computation outside of training was stopped by a request.
Outcome run(const Request& request, tasks::JobTask& task, const World& world,
            const Environment& environment, const Observers& observers, const StopRequests& stop);

}  // namespace tandem::job
