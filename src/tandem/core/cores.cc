#include "tandem/core/cores.h"

#include <fmt/format.h>
#include <sched.h>

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
    std::string siblings;
    if (seen.insert(std::getline(file, siblings) ? siblings : fmt::format("cpu {}", cpu)).second)
      cores.push_back(cpu);
  }
  return cores;
}

}  // namespace tandem
