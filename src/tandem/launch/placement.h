// How many workers a node gets, on which cores each of them runs, and with how many threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/run_options.h"

namespace tandem::launch {

// CPUs that share something, in order of their numbers.
struct Domain {
  std::vector<int> cpus;                // hardware threads that may be used
  std::vector<std::vector<int>> cores;  // the same, by core
};

// What of a machine may be used: affinity mask, cpuset and quota are taken off.
struct Machine {
  std::vector<Domain> numa;  // with memory of their own and at least one CPU
  std::vector<Domain> sockets;
  std::vector<Domain> caches;   // with a shared cache of level 3; sockets where there is none
  std::optional<double> quota;  // CPUs' worth of time
  int online_cpus = 1;          // of the whole machine

  int num_cpus() const;
  int num_cores() const;
  // What can compute at the same time: cores, or the quota where that is less.
  int usable_cores() const;
};

// The machine that this process runs on, by hwloc. Throws IoError when hwloc cannot read it.
Machine this_machine();
// A machine that hwloc describes in a word ("pack:2 numa:2 core:4 pu:2") or in a file of XML; of
// which only `allowed` may be used (empty: all).
Machine described_machine(const std::string& synthetic, const std::vector<int>& allowed = {});
Machine machine_from_xml(const std::string& path);

struct PlacementRequest {
  std::string nproc = "1";  // a number, auto, cpu
  bool own_job = false;
  Binding binding = Binding::kDefault;
  std::optional<int> omp_threads;  // OMP_NUM_THREADS, where set
  int communication_threads = 0;   // CCL_WORKER_COUNT
  // By worker, where somebody has decided it; empty, or an empty one: decided here.
  std::vector<std::vector<int>> cpus;
  std::vector<int> reserved;  // CPUs on which nobody computes (CCL_WORKER_AFFINITY)
};

struct WorkerPlacement {
  std::vector<int> cpus;       // empty: wherever this process may run
  std::optional<int> threads;  // OMP_NUM_THREADS; nothing: as it is
};

struct Placement {
  std::vector<WorkerPlacement> workers;
  std::string summary;                // one line of what was chosen
  std::vector<std::string> warnings;  // of what was put right, with both numbers
};

// tandem's own jobs: workers are spread over the memory domains, each tied to its share of the
// cores with a thread for each of them. Other programs get what torchrun gives them: no cores of
// their own unless `binding` asks, OMP_NUM_THREADS=1 where several start and it is not set. Throws
// ConfigError.
Placement place_workers(const Machine& machine, const PlacementRequest& request);

// How many workers --nproc-per-node means on this machine.
int num_workers(const Machine& machine, const std::string& nproc);

// A line for each memory domain: its CPUs, and which worker has which of them. Where there are
// several, another one says from which of them each worker's memory comes.
std::vector<std::string> draw(const Machine& machine, const Placement& placement);

// "0-3,8" for {0, 1, 2, 3, 8}.
std::string cpu_list(const std::vector<int>& cpus);

}  // namespace tandem::launch
