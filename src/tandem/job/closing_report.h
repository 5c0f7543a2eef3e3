// The last lines of a job: the files it wrote, and the commands that use them.
#pragma once

#include <chrono>
#include <string>

#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/tasks/job_task.h"

namespace tandem::job {

struct ClosingParts {
  const Request& request;
  const tasks::JobTask& task;
  std::string program;  // as a user starts it; empty: no command is named
  std::chrono::system_clock::time_point started;
};

// For the main process, after all files are written.
void print_closing_report(const ClosingParts& parts, Console& console);

}  // namespace tandem::job
