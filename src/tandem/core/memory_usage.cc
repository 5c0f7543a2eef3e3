#include "tandem/core/memory_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace tandem {
namespace {

// The value of a line "VmHWM:   1234 kB" of a file of /proc; 0 without one.
std::size_t field_bytes(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    std::size_t kib = 0;
    std::istringstream(line.substr(name.size() + 1)) >> kib;
    return kib << 10;
  }
  return 0;
}

MemoryUsage usage_in(const std::string& status) {
  MemoryUsage usage;
  usage.anonymous = field_bytes(status, "RssAnon");
  usage.file = field_bytes(status, "RssFile");
  usage.shared = field_bytes(status, "RssShmem");
  usage.peak = field_bytes(status, "VmHWM");
  return usage;
}

// The most so far, which the kernel reports without /proc, too.
std::size_t most_resident() {
  struct rusage usage {};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<std::size_t>(usage.ru_maxrss) << 10;
}

}  // namespace

MemoryUsage memory_usage() {
  MemoryUsage usage = usage_in("/proc/self/status");
  usage.shared_share = field_bytes("/proc/self/smaps_rollup", "Pss_Shmem");
  if (usage.peak == 0) usage.anonymous = usage.peak = most_resident();
  return usage;
}

MemoryUsage memory_usage_of_parent() {
  return usage_in("/proc/" + std::to_string(::getppid()) + "/status");
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace tandem
