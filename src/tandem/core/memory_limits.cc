#include "tandem/core/memory_limits.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "tandem/core/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Where one hierarchy of cgroups is mounted, and which part of it.
struct Mount {
  std::string point;
  std::string part;  // "/" but in containers that see a part of the host's tree
};

// The names that v1 and v2 give to the same things.
struct Version {
  const char* limit;
  const char* swap;  // v2: swap alone; v1: memory and swap together
  bool swap_holds_memory;
  const char* events;
};
constexpr Version kV1{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", true,
                      "memory.oom_control"};
constexpr Version kV2{"memory.max", "memory.swap.max", false, "memory.events"};

// v1 writes "no limit" as the greatest multiple of a page that an int64 holds.
constexpr std::size_t kNoLimit = std::size_t{1} << 60;

fs::path under(const fs::path& root, const fs::path& path) { return root / path.relative_path(); }

// A number of bytes; nothing for "max", for no limit, or without the file.
std::optional<std::size_t> bytes_in(const fs::path& file) {
  std::ifstream stream(file);
  std::size_t bytes = 0;
  if (!(stream >> bytes) || bytes >= kNoLimit) return {};
  return bytes;
}

std::size_t kibibytes_of(const fs::path& file, std::string_view name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(name)) continue;
    std::size_t kib = 0;
    std::istringstream(line.substr(name.size())) >> kib;
    return kib << 10;
  }
  return 0;
}

bool lists(const std::string& names, std::string_view name) {
  std::istringstream stream(names);
  for (std::string one; std::getline(stream, one, ',');) {
    if (one == name) return true;
  }
  return false;
}

// "31 23 0:28 PART POINT rw,relatime shared:1 - cgroup cgroup rw,memory"
std::optional<Mount> find_mount(const fs::path& root, bool v2) {
  std::ifstream stream(under(root, "/proc/self/mountinfo"));
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string skipped, type, source, options;
    Mount mount;
    words >> skipped >> skipped >> skipped >> mount.part >> mount.point;
    while (words >> skipped && skipped != "-") {
    }
    words >> type >> source >> options;
    if (v2 ? type == "cgroup2" : type == "cgroup" && lists(options, "memory")) return mount;
  }
  return {};
}

// A group of this process, in a hierarchy that counts memory.
struct Group {
  const Version* version;
  std::string point;  // where the hierarchy is mounted
  fs::path inside;    // the group's place there
};

// In a cgroup namespace of its own a process may see its group's path or the host's.
fs::path place_in(const Mount& mount, const std::string& group) {
  const fs::path inside = fs::path(group).lexically_relative(mount.part);
  if (inside.empty() || *inside.begin() == "..") return fs::path(group).relative_path();
  return inside;
}

std::vector<Group> own_groups(const fs::path& root) {
  std::vector<Group> result;
  std::ifstream groups(under(root, "/proc/self/cgroup"));
  // "0::/user.slice" (v2), "4:memory:/job" (v1)
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = line.starts_with("0::");
    if (!v2 && !lists(controllers, "memory")) continue;
    if (const auto mount = find_mount(root, v2))
      result.push_back({v2 ? &kV2 : &kV1, mount->point, place_in(*mount, line.substr(second + 1))});
  }
  return result;
}

// The limits of the group and of all above it that this process can see.
void add_limits(const fs::path& root, const Group& group, std::vector<MemoryLimit>& limits) {
  const Version& version = *group.version;
  fs::path inside = group.inside;
  struct stat space {};
  const bool known = ::stat(under(root, "/proc/self/ns/cgroup").c_str(), &space) == 0;
  while (true) {
    const fs::path folder = (under(root, group.point) / inside).lexically_normal();
    if (const auto bytes = bytes_in(folder / version.limit)) {
      MemoryLimit limit;
      const std::string name =
          fmt::format("/{}", inside == "." ? std::string() : inside.generic_string());
      limit.name = fmt::format("{} of the cgroup {}", version.limit, name);
      limit.key = fmt::format("{}:{}:{}", known ? space.st_ino : 0, version.limit, name);
      limit.bytes = *bytes;
      if (const auto swap = bytes_in(folder / version.swap)) {
        limit.swap = version.swap_holds_memory ? *swap - std::min(*swap, *bytes) : *swap;
      } else {
        limit.swap = kibibytes_of(under(root, "/proc/meminfo"), "SwapTotal:");
      }
      limits.push_back(std::move(limit));
    }
    if (inside.empty() || inside == ".") return;
    inside = inside.parent_path();
  }
}

}  // namespace

std::vector<MemoryLimit> memory_limits(const fs::path& root) {
  std::vector<MemoryLimit> limits;
  for (const Group& group : own_groups(root)) add_limits(root, group, limits);
  const fs::path meminfo = under(root, "/proc/meminfo");
  if (const std::size_t total = kibibytes_of(meminfo, "MemTotal:"); total != 0) {
    limits.push_back(
        {"the memory of this machine", "machine", total, kibibytes_of(meminfo, "SwapTotal:")});
  }
  std::stable_sort(limits.begin(), limits.end(),
                   [](const MemoryLimit& a, const MemoryLimit& b) { return a.bytes < b.bytes; });
  return limits;
}

std::uint64_t out_of_memory_kills(const fs::path& root) {
  std::uint64_t kills = 0;
  for (const Group& group : own_groups(root)) {
    std::ifstream events(under(root, group.point) / group.inside / group.version->events);
    std::string name;
    for (std::uint64_t count = 0; events >> name >> count;)
      if (name == "oom_kill") kills += count;
  }
  return kills;
}

std::size_t address_space_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::size_t>::max();
  }
  return limit.rlim_cur;
}

std::string describe_address_space_limit() {
  const std::size_t limit = address_space_limit();
  if (limit == std::numeric_limits<std::size_t>::max()) return "";
  return fmt::format(" (RLIMIT_AS, 'ulimit -v', allows {} MiB of address space)", limit >> 20);
}

std::size_t address_space() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  if (!(file >> pages)) return 0;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace tandem
