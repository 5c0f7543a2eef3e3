// The daemon of mpirun on one host: starts the ranks of this host, forwards their output and their
// PMI messages, and ends them if mpirun is gone.
#pragma once

#include <string>
#include <vector>

#include "tandem/launch/mpirun/daemon_stream.h"

namespace tandem::launch {

struct RankHostParts {
  DaemonStream launcher;
  std::string self;  // path of this tandem, for ranks that name it without a path
};

// Serves until mpirun knows the end of every rank, or is gone: then the ranks get SIGTERM, and
// SIGKILL 5 s later. On mpirun's own host the daemon and its ranks get SIGKILL as soon as mpirun is
// killed. Returns the exit code. SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are
// forwarded to the ranks.
int host_ranks(RankHostParts parts);

}  // namespace tandem::launch
