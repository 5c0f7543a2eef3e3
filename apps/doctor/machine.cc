#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "apps/doctor/checks.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/huge_pages.h"
#include "tandem/core/thread_pool.h"
#include "tandem/launch/process/pinning.h"

namespace tandem::apps::doctor {
namespace {

namespace fs = std::filesystem;

constexpr double kGiB = 1 << 30;
constexpr double kLittleDisk = 2 * kGiB;  // a checkpoint of BERT-large with its optimizer takes 4
constexpr double kLittleShm = 0.0625 * kGiB;  // what containers get unasked
// data, control; on one node also its socket, doorbell, process and memory
constexpr rlim_t kDescriptorsPerRank = 6;
constexpr rlim_t kDescriptorsOfRank = 64;  // files, pipes, libraries

// The first line of a file of /sys or /proc, or "".
std::string line_of(const fs::path& path) {
  try {
    const auto text = read_file_if_exists(path);
    return text ? text->substr(0, text->find('\n')) : "";
  } catch (const IoError&) {
    return "";
  }
}

int cores_of_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

// "8 GiB" of "MemTotal:  8388608 kB".
double meminfo(const std::string& name) {
  std::istringstream lines(read_file_if_exists("/proc/meminfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stod(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

std::string limit_text(rlim_t value, double unit, std::string_view name) {
  if (value == RLIM_INFINITY) return "unlimited";
  return fmt::format("{:.6g}{}", static_cast<double>(value) / unit, name);
}

void check_cores(const Environment& environment, Report& report) {
  const int online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const int mask = cores_of_mask();
  const int available = available_cores();
  std::string text =
      fmt::format("{} physical cores available of {} hardware threads online", available, online);
  if (mask < online) text += fmt::format("; the affinity mask allows {}", mask);
  if (available < mask) text += "; hardware threads of one core and the cgroup's quota are counted";
  report.fact("cores", text);
  const bool smt = line_of("/sys/devices/system/cpu/smt/active") == "1";
  const std::string nodes = line_of("/sys/devices/system/node/online");
  report.fact("topology",
              fmt::format("{}; NUMA nodes {}",
                          smt ? "two hardware threads share a core (SMT)" : "one thread per core",
                          nodes.empty() ? "unknown" : nodes));
  const auto threads = environment.get("OMP_NUM_THREADS");
  const int asked = threads ? std::atoi(threads->c_str()) : 0;
  if (asked > available) {
    report.problem(
        "cores", fmt::format("OMP_NUM_THREADS is {} and {} cores are available", asked, available),
        "set OMP_NUM_THREADS to the available cores divided by the ranks of a node, or "
        "unset it");
  }
}

void check_memory(Report& report) {
  report.fact("memory", fmt::format("{:.1f} GiB, {:.1f} GiB available", meminfo("MemTotal") / kGiB,
                                    meminfo("MemAvailable") / kGiB));
  const auto chosen = [](const std::string& line) {
    const std::size_t begin = line.find('['), end = line.find(']');
    return begin == std::string::npos ? std::string("unknown")
                                      : line.substr(begin + 1, end - begin - 1);
  };
  const std::string thp = "/sys/kernel/mm/transparent_hugepage/";
  const std::string normal = chosen(line_of(thp + "enabled"));
  const bool in_shared_memory = shared_memory_gets_huge_pages();
  report.fact("huge pages",
              fmt::format("transparent: {}; in shared memory: {}, {}; reserved: {:.0f}", normal,
                          chosen(line_of(thp + "shmem_enabled")),
                          in_shared_memory ? "tandem gets them" : "tandem gets none",
                          meminfo("HugePages_Total") / 1024));
  if (!in_shared_memory) {
    report.note("huge pages", "'echo advise > " + thp +
                                  "shmem_enabled' as root gives the memory "
                                  "that ranks of a node share larger pages");
  }
  if (normal == "never") {
    report.note("huge pages",
                "'echo madvise > " + thp + "enabled' as root makes large buffers faster");
  }
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    const double size = static_cast<double>(shm.f_blocks) * static_cast<double>(shm.f_frsize);
    report.fact("/dev/shm", fmt::format("{:.3f} GiB; tandem itself does not use it", size / kGiB));
    if (size <= kLittleShm) {
      report.note("/dev/shm",
                  "MPI libraries (--ddp_backend mpi) end with a bus error when it is "
                  "full: start the container with --shm-size=1g");
    }
  }
}

void check_limits(int ranks_of_job, Report& report) {
  rlimit locked{}, files{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  ::getrlimit(RLIMIT_NOFILE, &files);
  report.fact("limits",
              fmt::format("locked memory {}, open files {} (hard limit {})",
                          limit_text(locked.rlim_cur, kGiB / 1024, " MiB"),
                          limit_text(files.rlim_cur, 1, ""), limit_text(files.rlim_max, 1, "")));
  if (locked.rlim_cur != RLIM_INFINITY) {
    report.note("limits",
                "fabrics with their own memory (InfiniBand, Omni-Path) need 'ulimit -l "
                "unlimited'; tcp does not");
  }
  const rlim_t needed =
      static_cast<rlim_t>(ranks_of_job) * kDescriptorsPerRank + kDescriptorsOfRank;
  if (files.rlim_max < needed) {  // a job raises the soft limit itself
    report.problem("limits",
                   fmt::format("a rank of a job of {} ranks opens up to {} files and sockets, and "
                               "{} are allowed",
                               ranks_of_job, needed, files.rlim_max),
                   fmt::format("ulimit -Hn {}", needed));
  }
}

}  // namespace

void check_machine(const Environment& environment, int ranks_of_job, Report& report) {
  check_cores(environment, report);
  check_memory(report);
  check_limits(ranks_of_job, report);
}

void draw_plan(const Environment& environment, int ranks_of_host, Report& report) {
  try {
    const launch::Machine machine = launch::this_machine();
    launch::PlacementRequest request;
    request.nproc = ranks_of_host > 0 ? std::to_string(ranks_of_host) : "auto";
    request.own_job = true;
    const auto get = [&](std::string_view name) { return environment.get(name); };
    for (const auto& note : launch::apply_pin_variables(get, machine, request))
      report.note("plan", note);
    const launch::Placement placement = launch::place_workers(machine, request);
    report.fact("plan", placement.summary);
    for (const std::string& line : launch::draw(machine, placement)) report.fact("plan", line);
    for (const std::string& warning : placement.warnings) report.note("plan", warning);
  } catch (const Error& error) {
    report.note("plan", error.what());
  }
}

void check_output_dir(const fs::path& directory, Report& report) {
  std::error_code ignored;
  fs::path existing = fs::absolute(directory);
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) {
    existing = existing.parent_path();
  }
  struct statvfs space {};
  if (::statvfs(existing.c_str(), &space) != 0 || !fs::is_directory(existing, ignored)) {
    return report.problem("output", fmt::format("'{}' is not a directory", existing.native()),
                          "choose another --output_dir");
  }
  const double free = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  report.fact("output", fmt::format("{:.1f} GiB free in {}", free / kGiB, existing.native()));
  if (::access(existing.c_str(), W_OK) != 0) {
    report.problem("output", fmt::format("'{}' is not writable", existing.native()),
                   "choose another --output_dir or change its permissions");
  } else if (free < kLittleDisk) {
    report.problem("output",
                   fmt::format("only {:.1f} GiB are free in '{}'; a checkpoint is three times the "
                               "model in f32",
                               free / kGiB, existing.native()),
                   "make room, choose another --output_dir, or set --save_total_limit 1");
  }
}

}  // namespace tandem::apps::doctor
