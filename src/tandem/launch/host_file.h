// The file that `mpirun -f` takes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tandem::launch {

struct HostfileEntry {
  std::string host;
  int ranks = 1;
};

// One host a line: "node0", "node0:2" (Hydra), "node0 slots=2" (Open MPI); '#' begins a comment.
// Throws IoError, and ConfigError that names file and line when a line is none of these, a host
// comes twice, or there is no host.
std::vector<HostfileEntry> read_hostfile(const std::filesystem::path& path);

// The same of one text, as behind `mpirun -hosts`: "node0:2,node1". A host may come twice.
std::vector<HostfileEntry> read_host_list(const std::string& list);

}  // namespace tandem::launch
