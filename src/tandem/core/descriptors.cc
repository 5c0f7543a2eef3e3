#include "tandem/core/descriptors.h"

#include <dirent.h>
#include <sys/resource.h>

#include <cerrno>
#include <memory>

#include "tandem/core/error.h"

namespace tandem {
namespace {

// In addition to the reserved ones: data, checkpoints and libraries are opened a few at a time.
constexpr std::size_t kForFiles = 24;

// Standard streams and those that the launcher passed on, if /proc does not list them.
constexpr std::size_t kUsual = 8;

std::size_t open_descriptors(rlim_t limit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (!folder) return out_of_descriptors(errno) ? static_cast<std::size_t>(limit) : kUsual;
  std::size_t count = 0;
  while (::readdir(folder.get()) != nullptr) ++count;
  return count < 3 ? 0 : count - 3;  // ".", ".." and this look itself
}

std::string text_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

}  // namespace

bool out_of_descriptors(int error_number) {
  return error_number == EMFILE || error_number == ENFILE;
}

void raise_out_of_descriptors(std::string_view doing, int error_number) {
  if (error_number == ENFILE) {
    raise<ConfigError>(
        "{}: the system-wide file descriptor limit is exhausted; 'sysctl fs.file-max' shows the "
        "limit and 'cat /proc/sys/fs/file-nr' how many are in use",
        doing);
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  raise<ConfigError>(
      "{}: this process has used up its {} file descriptors (hard limit {}); allow more, for "
      "example with 'ulimit -n {}' before the job starts",
      doing, text_of(limit.rlim_cur), text_of(limit.rlim_max), 4 * limit.rlim_cur);
}

void reserve_descriptors(std::size_t more, std::string_view who, std::string_view instead) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const std::size_t open = open_descriptors(limit.rlim_cur);
  const rlim_t needed = open + more + kForFiles;
  if (limit.rlim_cur >= needed) return;
  const rlim_t soft = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  const bool raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  if (raised && limit.rlim_cur >= needed) return;
  raise<ConfigError>(
      "{} needs {} file descriptors ({} are open, {} for connections, {} for files) and may have "
      "{} (soft limit {}, hard limit {}); allow more with 'ulimit -Hn {}' as root, LimitNOFILE= of "
      "the service or container, or /etc/security/limits.conf, or {}",
      who, needed, open, more, kForFiles, text_of(raised ? limit.rlim_max : soft), text_of(soft),
      text_of(limit.rlim_max), needed, instead);
}

}  // namespace tandem
