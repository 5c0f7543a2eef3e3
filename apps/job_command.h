// A job as a process: every `tandem run_…` command, what people type `python3 run_….py` for. The
// job is src/tandem/job/job.cc; its task comes from the command's row. Here are what surrounds it:
// command line, signals, the console, exit codes.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "apps/arguments/job_commands.h"
#include "apps/command/commands.h"
#include "apps/command/log_prefix.h"
#include "tandem/models/encoder/family.h"

namespace tandem::apps {

// A command line that is wrong is so on every rank of a job, and so is a model that is missing:
// rank 0 logs it. The others give the launcher time to end them because of rank 0. If they are
// still running, the error is theirs alone, or no launcher ends them, and they log it as well.
// Returns early, with false, when `ended` returns true: the launcher has asked for the end.
bool let_rank_0_log(
    const Environment& environment, const std::function<bool()>& ended = [] { return false; });

// Runs the job that the words ask for and returns the process's exit code: 0; 1 when no int8 model
// is good enough; 128 + the signal that stopped it. `families`: those that a model may be of;
// none: the command's.
// Errors are thrown after the other ranks were notified; before `meets` is true they were not.
int run_job(const JobCommand& command, const Invocation& invocation, bool& meets,
            std::span<const models::Family* const> families = {});

// In a catch block, before the ranks have met: goes to the bootstrap to notify the others, unless
// the launcher ends them all.
void notify_ranks_of_current_error(const Environment& environment,
                                   const LogPrefix& log_prefix) noexcept;

// Writes the reason of a job's failure for the agent that started this process.
void leave_reason(const Environment& environment, std::string_view reason);

}  // namespace tandem::apps
