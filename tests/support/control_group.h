// A control group that limits memory, made and removed by a test.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace tandem::testing {

// A control group of cgroup v1 or v2 under the root one; needs root.
class ControlGroup {
 public:
  explicit ControlGroup(std::size_t bytes) {
    for (const char* base : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      folder_ = std::filesystem::path(base) / fmt::format("tandem-test-{}", ::getpid());
      std::error_code failed;
      if (!std::filesystem::create_directory(folder_, failed)) continue;
      for (const char* file : {"memory.limit_in_bytes", "memory.max"}) {
        std::ofstream limit(folder_ / file);
        works_ = works_ || (limit && limit << bytes && limit.flush());
      }
      if (works_) return;
      std::filesystem::remove(folder_, failed);
    }
  }
  ~ControlGroup() {
    if (works_) ::rmdir(folder_.c_str());
  }
  bool works() const { return works_; }
  const std::filesystem::path& folder() const { return folder_; }
  // `command`, run by a shell that has joined the group.
  std::vector<std::string> inside(const std::vector<std::string>& command) const {
    std::vector<std::string> words = {
        "/bin/sh", "-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"", folder_.native()};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

 private:
  std::filesystem::path folder_;
  bool works_ = false;
};

}  // namespace tandem::testing
