// The file that `mpirun -f` takes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::launch {

// What a host file says about a host besides its name and slots. Empty: nothing.
struct HostSettings {
  std::string user;              // of ssh
  std::optional<int> port;       // of ssh
  std::string bind_to, map_by;   // in the place of -bind-to and -map-by
  std::string interface;         // TANDEM_IFNAME of its ranks
  std::optional<int> max_ranks;  // the most ranks that it may get
};

struct HostfileEntry {
  std::string host;
  int ranks = 1;
  HostSettings settings = {};
};

// One host a line, as Hydra, Intel MPI and Open MPI read it: "node0", "node0:2" or
// "node0 slots=2"; a line of SGE's PE_HOSTFILE, "node0 2 queue range"; attributes behind the name;
// comments behind '#' and "//"; blank lines; a byte order mark; lines that end with CR LF. As under
// Hydra, lines of one host add up: those that follow each other are one entry, others are entries
// of their own, which keeps the order of the ranks.
// Throws IoError, and ConfigError that names file and line when a line is none of these, an
// attribute is not supported, two lines contradict each other, or there is no host.
std::vector<HostfileEntry> read_hostfile(const std::filesystem::path& path);

// The same of one text, as behind `mpirun -hosts`: "node0:2,node1".
std::vector<HostfileEntry> read_host_list(const std::string& list);

// One entry for each host, in the order in which they come first, with the sum of its ranks.
std::vector<HostfileEntry> each_host_once(const std::vector<HostfileEntry>& entries);

}  // namespace tandem::launch
