// Number of threads of a rank.
#pragma once

#include <optional>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/core/env.h"

namespace tandem::job {

struct RankThreads {
  int count = 1;
  std::string reason;   // for the start report
  std::string warning;  // if there are more threads than cores; else empty
};

// OMP_NUM_THREADS, or nothing if it is not set or 0. Throws ConfigError.
std::optional<int> openmp_threads(const Environment& environment);

// OMP_NUM_THREADS if set and not 0; otherwise the cores this rank may use. These are the cores of
// its own affinity mask if the launcher gave the ranks of this node different ones, else the node's
// available cores (mask and cgroup quota) divided among them. Collective.
RankThreads threads_for_rank(const Environment& environment, comm::Communicator& communicator);

}  // namespace tandem::job
