// `tandem mpirun`: starts the ranks of an MPI job on its hosts, lets them find each other by PMI-1,
// shows what they print, and says in the end which of them was to blame.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/launch/attempt_logs.h"
#include "tandem/launch/mpi_line.h"

namespace tandem::launch {

struct MpirunParts {
  MpiLine line;
  std::string self;         // path of this tandem; it is at the same place on all hosts
  std::string helper_word;  // makes `tandem mpirun` the helper on a host
  std::vector<std::string> job_commands;  // run_qa and its like
  EnvironmentMap inherited;
  std::string directory;  // where the ranks begin unless -wdir says otherwise
  int input = 0;          // descriptor of stdin
  Console console;
  std::function<void(const std::string& line)> log;  // a line for people
};

// Runs the job to its end and returns the exit code: 0; that of the rank to blame, 128 + its
// signal; the code of MPI_Abort; 1 when something could not be started; 124 after MPIEXEC_TIMEOUT;
// 200 when a host was lost. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go to all ranks.
// Throws ConfigError for what cannot begin. In the process's main thread, before others are
// started.
int run_mpi_job(MpirunParts parts);

}  // namespace tandem::launch
