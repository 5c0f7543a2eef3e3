// Whether a rank gets a helper thread (worker.h), and where: oneCCL's CCL_WORKER_COUNT and
// CCL_WORKER_AFFINITY.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tandem/core/env.h"

namespace tandem::comm {

struct WorkerOptions {
  // Helper threads asked for. Operations run one after the other, so one thread does all there is
  // to do.
  int count = 0;
  // One for each rank of the node, in turns; empty: the last cores that are spare.
  std::vector<int> cores;
  int compute_threads = 0;  // of this rank; 0: as many as it has cores

  // Reads CCL_WORKER_COUNT and CCL_WORKER_AFFINITY ("auto", "3", "22,23,46-47"). Throws
  // ConfigError.
  static WorkerOptions from_environment(const Environment& environment, int compute_threads);
};

// What the ranks of a node tell each other.
struct RankCores {
  bool asks = false;
  int compute_threads = 0;
  int usable = 0;          // cores, quota included
  std::vector<int> cores;  // of its affinity mask

  std::string write() const;
  static RankCores read(const std::string& text);  // of write(); throws CommError
};

struct WorkerPlan {
  int core = -1;     // −1: no helper thread
  std::string text;  // "a helper thread on core 23", "no helper thread: …"
};

// For local rank `local_rank`. A core is spare when it is left over after the compute threads of
// all ranks that may use it; every rank that asks needs one. Cores that were named are taken as
// they are.
WorkerPlan plan_worker(std::span<const RankCores> ranks, int local_rank,
                       const WorkerOptions& options);

}  // namespace tandem::comm
