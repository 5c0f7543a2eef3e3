#include "tandem/core/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

namespace tandem {

std::vector<int> allowed_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cores;
  std::set<std::string> seen;  // hardware threads of one core name the same siblings
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    std::ifstream file(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string local_processes;
    if (seen.insert(std::getline(file, local_processes) ? local_processes
                                                        : fmt::format("cpu {}", cpu))
            .second)
      cores.push_back(cpu);
  }
  return cores;
}

// "max 100000" (v2 cpu.max) or the v1 pair of files.
std::optional<double> cgroup_cpu_quota() {
  std::optional<double> quota;
  const auto consider = [&](double us, double period_us) {
    if (us > 0 && period_us > 0) quota = std::min(quota.value_or(1e9), us / period_us);
  };
  std::ifstream cgroups("/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    const auto second = line.rfind(':');
    const auto first = line.find(':');
    if (second == std::string::npos || first == second) {
      if (first == std::string::npos) continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    const bool v2 = controllers.empty();
    const bool v1_cpu = (',' + controllers + ',').find(",cpu,") != std::string::npos;
    if (!v2 && !v1_cpu) continue;
    while (true) {
      if (v2) {
        std::ifstream file("/sys/fs/cgroup" + path + "/cpu.max");
        std::string limit;
        double period = 0;
        if (file >> limit >> period && limit != "max") consider(std::atof(limit.c_str()), period);
      } else {
        const std::string folder = "/sys/fs/cgroup/cpu" + path;
        std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
        std::ifstream period_file(folder + "/cpu.cfs_period_us");
        double us = -1;
        double period = 0;
        if (quota_file >> us && period_file >> period) consider(us, period);
      }
      if (path.empty() || path == "/") break;
      path.erase(path.rfind('/'));
    }
  }
  return quota;
}

}  // namespace tandem
