// The file that `mpirun -f` takes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tandem::apps::doctor {

struct HostfileEntry {
  std::string host;
  int ranks = 1;
};

// One host a line: "node0", "node0:2" (Hydra), "node0 slots=2" (Open MPI); '#' begins a comment.
// Throws IoError, and ConfigError that names file and line when a line is none of these, a host
// comes twice, or there is no host.
std::vector<HostfileEntry> read_hostfile(const std::filesystem::path& path);

}  // namespace tandem::apps::doctor
