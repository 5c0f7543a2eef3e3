// The part of placement.h that asks hwloc.
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <memory>
#include <set>

#include "tandem/core/cores.h"
#include "tandem/core/error.h"
#include "tandem/launch/process/placement.h"

namespace tandem::launch {
namespace {

struct TopologyEnd {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyEnd>;

Topology new_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) raise<IoError>("hwloc has no memory");
  return Topology(topology);
}

void load(const Topology& topology, const std::string& what) {
  if (hwloc_topology_load(topology.get()) != 0) raise<IoError>("hwloc cannot read {}", what);
}

std::vector<int> cpus_in(hwloc_const_cpuset_t set, const std::set<int>& allowed) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) {
    if (allowed.contains(cpu)) cpus.push_back(cpu);
  }
  return cpus;
}

// Cores whose hardware threads belong to the domain; if hwloc has no cores, each CPU is one.
std::vector<std::vector<int>> cores_of(hwloc_topology_t topology, const std::vector<int>& cpus) {
  const std::set<int> inside(cpus.begin(), cpus.end());
  std::vector<std::vector<int>> cores;
  std::set<int> seen;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr) {
    std::vector<int> threads = cpus_in(core->cpuset, inside);
    seen.insert(threads.begin(), threads.end());
    if (!threads.empty()) cores.push_back(std::move(threads));
  }
  for (const int cpu : cpus) {
    if (!seen.contains(cpu)) cores.push_back({cpu});
  }
  std::sort(cores.begin(), cores.end());
  return cores;
}

// The objects of one kind with usable CPUs. Memory without CPUs and a second memory at the same
// CPUs (HBM, CXL) are not separate domains.
std::vector<Domain> domains_of(hwloc_topology_t topology, hwloc_obj_type_t type,
                               const std::set<int>& allowed) {
  std::vector<Domain> domains;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr) {
    Domain domain{cpus_in(object->cpuset, allowed), {}};
    const bool known = std::any_of(domains.begin(), domains.end(),
                                   [&](const Domain& other) { return other.cpus == domain.cpus; });
    if (domain.cpus.empty() || known) continue;
    domain.cores = cores_of(topology, domain.cpus);
    domains.push_back(std::move(domain));
  }
  std::sort(domains.begin(), domains.end(),
            [](const Domain& a, const Domain& b) { return a.cpus < b.cpus; });
  return domains;
}

Machine read(const Topology& topology, const std::vector<int>& only) {
  const auto* root = hwloc_get_root_obj(topology.get());
  std::set<int> allowed(only.begin(), only.end());
  if (only.empty()) {
    for (int cpu = hwloc_bitmap_first(root->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(root->cpuset, cpu)) {
      allowed.insert(cpu);
    }
  }
  Machine machine;
  machine.online_cpus = std::max(1, hwloc_bitmap_weight(root->complete_cpuset));
  machine.numa = domains_of(topology.get(), HWLOC_OBJ_NUMANODE, allowed);
  machine.sockets = domains_of(topology.get(), HWLOC_OBJ_PACKAGE, allowed);
  machine.caches = domains_of(topology.get(), HWLOC_OBJ_L3CACHE, allowed);
  if (machine.numa.empty()) machine.numa = domains_of(topology.get(), HWLOC_OBJ_MACHINE, allowed);
  if (machine.sockets.empty()) machine.sockets = machine.numa;
  if (machine.caches.empty()) machine.caches = machine.sockets;
  if (machine.numa.empty()) raise<IoError>("hwloc names no CPU that may be used");
  return machine;
}

}  // namespace

Machine this_machine() {
  const Topology topology = new_topology();
  load(topology, "this machine");
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> allowed;
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) allowed.push_back(cpu);
    }
  }
  Machine machine = read(topology, allowed);
  machine.quota = cgroup_cpu_quota();
  return machine;
}

Machine described_machine(const std::string& synthetic, const std::vector<int>& allowed) {
  const Topology topology = new_topology();
  if (hwloc_topology_set_synthetic(topology.get(), synthetic.c_str()) != 0)
    raise<ConfigError>("hwloc does not understand the topology '{}'", synthetic);
  load(topology, synthetic);
  return read(topology, allowed);
}

Machine machine_from_xml(const std::string& path) {
  const Topology topology = new_topology();
  if (hwloc_topology_set_xml(topology.get(), path.c_str()) != 0)
    raise<ConfigError>("'{}' is not a topology of hwloc in XML", path);
  load(topology, path);
  return read(topology, {});
}

}  // namespace tandem::launch
