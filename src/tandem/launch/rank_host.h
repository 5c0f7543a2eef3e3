// The helper of mpirun on one host: starts the ranks of this host, carries what they print and what
// they say to PMI, and ends them when mpirun is gone.
#pragma once

#include <string>
#include <vector>

#include "tandem/launch/frame_stream.h"

namespace tandem::launch {

struct RankHostParts {
  FrameStream launcher;
  std::string self;  // path of this tandem, for ranks that name it without a path
};

// Serves until mpirun has heard of the end of every rank, or is gone: then the ranks get SIGTERM,
// and SIGKILL 5 s later. On mpirun's own host the daemon and its ranks get SIGKILL as soon as
// mpirun is killed. Returns the exit code. SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go
// to the ranks.
int host_ranks(RankHostParts parts);

}  // namespace tandem::launch
