// Number of workers of a node, with the cores and the number of threads of each.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::launch {

// CPUs that share a resource, in order of their numbers.
struct Domain {
  std::vector<int> cpus;                // hardware threads that may be used
  std::vector<std::vector<int>> cores;  // the same, by core
};

// The usable part of a machine: within affinity mask, cpuset and quota.
struct Machine {
  std::vector<Domain> numa;  // with separate memory and at least one CPU
  std::vector<Domain> sockets;
  std::vector<Domain> caches;   // with a shared cache of level 3; sockets without one
  std::optional<double> quota;  // CPUs' worth of time
  int online_cpus = 1;          // CPUs of the whole machine

  int num_cpus() const;
  int num_cores() const;
  // Number of parallel threads: cores, or the quota if that is less.
  int usable_cores() const;
};

// The machine that this process runs on, from hwloc. Throws IoError if hwloc cannot read it.
Machine this_machine();
// A machine from a description of hwloc ("pack:2 numa:2 core:4 pu:2") or from an XML file; only
// `allowed` may be used (empty: all).
Machine described_machine(const std::string& synthetic, const std::vector<int>& allowed = {});
Machine machine_from_xml(const std::string& path);

// Binding of workers to cores (--numa-binding).
enum class Binding { kDefault, kNone, kNode, kSocket, kExclusive, kCoreComplex };

struct PlacementRequest {
  std::string nproc = "1";  // a number, auto, cpu
  bool own_job = false;
  Binding binding = Binding::kDefault;
  std::optional<int> omp_threads;  // OMP_NUM_THREADS, if set
  int communication_threads = 0;   // CCL_WORKER_COUNT
  // By worker, if already decided; empty, or an empty entry: decided here.
  std::vector<std::vector<int>> cpus;
  std::vector<int> reserved;  // CPUs without compute threads (CCL_WORKER_AFFINITY)
};

struct WorkerPlacement {
  std::vector<int> cpus;       // empty: the CPUs of this process
  std::optional<int> threads;  // OMP_NUM_THREADS; empty: unchanged
};

struct Placement {
  std::vector<WorkerPlacement> workers;
  std::string summary;                // one line about the choice
  std::vector<std::string> warnings;  // about corrected values, with both numbers
};

// tandem's own jobs: workers are spread over the memory domains, each bound to its share of the
// cores with a thread for each of them. Other ranks of mpirun are bound only if `binding` or `cpus`
// request it, and their number of threads is unchanged. Throws ConfigError.
Placement place_workers(const Machine& machine, const PlacementRequest& request);

// Number of workers that --nproc-per-node means on this machine.
int num_workers(const Machine& machine, const std::string& nproc);

// A line for each memory domain: its CPUs, and the worker of each CPU. If there are several
// domains, another line shows the domain of each worker's memory.
std::vector<std::string> draw(const Machine& machine, const Placement& placement);

// "0-3,8" for {0, 1, 2, 3, 8}.
std::string cpu_list(const std::vector<int>& cpus);

}  // namespace tandem::launch
