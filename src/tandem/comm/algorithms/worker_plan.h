// Decides whether a rank gets a progress thread (worker.h), and on which core: oneCCL's
// CCL_WORKER_COUNT and CCL_WORKER_AFFINITY.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tandem/core/env.h"

namespace tandem::comm {

struct WorkerOptions {
  // Requested progress threads. Operations run one after the other, so one thread does all the
  // work.
  int count = 0;
  // One for each rank of the node, repeated as needed; empty: the last spare cores.
  std::vector<int> cores;
  int compute_threads = 0;  // for this rank; 0: as many as it has cores

  // Reads CCL_WORKER_COUNT and CCL_WORKER_AFFINITY ("auto", "3", "22,23,46-47"). Throws
  // ConfigError.
  static WorkerOptions from_environment(const Environment& environment, int compute_threads);
};

// The data that the ranks of a node exchange.
struct RankCores {
  bool asks = false;
  int compute_threads = 0;
  int usable = 0;          // cores, quota included
  std::vector<int> cores;  // cores of its affinity mask

  std::string write() const;
  static RankCores read(const std::string& text);  // reads the text of write(); throws CommError
};

struct WorkerPlan {
  int core = -1;     // −1: no progress thread
  std::string text;  // "a progress thread on core 23", "no progress thread: …"
};

// The plan for local rank `local_rank`. A core is spare if it is left over after the compute
// threads of all ranks that may use it; every requesting rank needs one. Cores that were named are
// used as given.
WorkerPlan plan_worker(std::span<const RankCores> ranks, int local_rank,
                       const WorkerOptions& options);

}  // namespace tandem::comm
