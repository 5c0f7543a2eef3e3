// A job of any task, in phases: world → kernels → model → data → train → evaluate → predict → save
// → report. The program around it parses the command line, shows what is told to it and ends the
// process.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tandem/core/env.h"
#include "tandem/hub/download_observer.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/job/world.h"
#include "tandem/models/family.h"
#include "tandem/tasks/job_task.h"

namespace tandem::job {

// How the process is told to stop.
struct StopRequests {
  const std::atomic<bool>& requested;  // once true, training ends after the step, or in an
                                       // evaluation between two, and a checkpoint
  // Makes a first request wait for the trainer as long as what it returns lives.
  std::function<std::shared_ptr<void>()> during_training;
  std::function<std::string()> name;  // of the request that came: "SIGTERM"
};

// The process that a job runs in.
struct Process {
  const Environment& environment;
  Console& console;
  hub::DownloadObserver& downloads;
  StopRequests stop;
  std::span<const models::Family* const> families;  // that a model may be of
  std::string program;  // how a person starts this program, for the commands that a job names
  // Are told of training beside the console; the second only while this is the main process.
  trainer::Observer* watcher = nullptr;
  trainer::Observer* main_watcher = nullptr;
};

enum class Outcome {
  kDone,
  kRejected,  // no int8 model is good enough, or the saved one differs; the console has said so
  kStopped,   // on request, in training, after a checkpoint
};

// Runs the job that `request` asks for. Collective over the ranks of `world`; every rank returns
// the same. Throws tandem::Error, and Interrupted when a computation outside of training was told
// to stop.
Outcome run(const Request& request, tasks::JobTask& task, const World& world,
            const Process& process);

}  // namespace tandem::job
