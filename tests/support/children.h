// The children of a process.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <fstream>
#include <vector>

namespace tandem::testing {

// The processes that a process has started and that are still there.
inline std::vector<pid_t> children(pid_t process) {
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", process));
  std::vector<pid_t> result;
  for (pid_t child = 0; list >> child;) result.push_back(child);
  return result;
}

}  // namespace tandem::testing
