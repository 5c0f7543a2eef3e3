// How many threads a rank computes with.
#pragma once

#include <optional>
#include <string>

#include "tandem/comm/api/communicator.h"
#include "tandem/core/env.h"

namespace tandem::job {

struct RankThreads {
  int count = 1;
  std::string reason;   // for the start-up print
  std::string warning;  // of more threads than cores; else empty
};

// OMP_NUM_THREADS, or nothing when it is not set or 0. Throws ConfigError.
std::optional<int> openmp_threads(const Environment& environment);

// OMP_NUM_THREADS if set and not 0; otherwise the cores this rank may use: its own affinity mask
// when the launcher gave the ranks of this node different ones, else the node's available cores
// (mask and cgroup quota) divided among them. Collective.
RankThreads threads_for_rank(const Environment& environment, comm::Communicator& communicator);

}  // namespace tandem::job
