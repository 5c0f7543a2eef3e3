// `tandem mpirun`: starts the ranks of an MPI job on its hosts, serves PMI-1 for their bootstrap,
// prints their output, and reports at the end which rank caused a failure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/launch/mpirun/mpi_line.h"
#include "tandem/launch/run/attempt_logs.h"

namespace tandem::launch {

struct MpirunParts {
  MpiLine line;
  std::string self;                       // path of this tandem; the same on all hosts
  std::string daemon_word;                // makes `tandem mpirun` the daemon on a host
  std::vector<std::string> job_commands;  // run_qa and similar commands
  EnvironmentMap inherited;
  std::string directory;  // working directory of the ranks without -wdir
  int input = 0;          // descriptor of stdin
  Console console;
  std::function<void(const std::string& line)> log;  // log lines for users
};

// Runs the job to its end and returns the exit code: 0; that of the rank that caused the failure,
// or 128 + its signal; the code of MPI_Abort; 1 if a program could not be started; 124 after
// MPIEXEC_TIMEOUT; 200 if a host was lost. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2
// are forwarded to all ranks. Throws ConfigError if the job cannot start. Call it on the process's
// main thread, before others are started.
int run_mpi_job(MpirunParts parts);

}  // namespace tandem::launch
